"""The pools of LoRA adapters of a loaded engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.loaded.pools import pages
from optc.errors import InputError
from optc.runtime.executable.adapter_spec import AdapterSpec, ModuleWeights


class AdapterPools:
    """A and B of every module and slot, in anonymous pages that are taken on first write."""

    def __init__(self, spec: AdapterSpec | None, wrap: Callable[[npt.NDArray[Any]], Any]) -> None:
        self._spec = spec
        self._arrays: list[npt.NDArray[Any]] = []
        if spec is not None:
            self._arrays = [pages(shape, "float32") for shape in pool_shapes(spec)]
        self.tensors = [wrap(array) for array in self._arrays]

    def write(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Set one slot, modules without weights to zero.

        Raises:
            InputError: The engine has no such slot, or a shape does not fit.
        """
        for index, weights in enumerate(checked(self._spec, slot, modules)):
            a, b = self._arrays[2 * index][slot], self._arrays[2 * index + 1][slot]
            np.copyto(a, 0 if weights is None else weights.a)
            np.copyto(b, 0 if weights is None else weights.b)

    def release(self) -> None:
        """Drop all pools."""
        self.tensors.clear()
        self._arrays.clear()


def pool_shapes(spec: AdapterSpec | None) -> list[tuple[int, int, int]]:
    """Shapes of A [slots, k, parts * rank] and B [slots, rank, n] of every module."""
    if spec is None:
        return []
    most, rank = spec.max, spec.rank
    return [
        shape
        for module in spec.modules
        for shape in ((most, module.k, len(module.parts) * rank), (most, rank, module.n))
    ]


def checked(
    spec: AdapterSpec | None, slot: int, modules: Sequence[ModuleWeights | None]
) -> Sequence[ModuleWeights | None]:
    """An adapter's modules, which the engine has room for.

    Raises:
        InputError: The engine has no such slot, or a shape does not fit.
    """
    if spec is None:
        raise InputError("the engine takes no adapters", where="write_adapter")
    if not 0 <= slot < spec.max:
        raise InputError(f"adapter slot {slot} of {spec.max}", where="write_adapter")
    if len(modules) != len(spec.modules):
        raise InputError(f"{len(modules)} modules for {len(spec.modules)}", where="write_adapter")
    shapes = pool_shapes(spec)
    for index, weights in enumerate(modules):
        (_, *a), (_, *b) = shapes[2 * index : 2 * index + 2]
        if weights is not None and (list(weights.a.shape), list(weights.b.shape)) != (a, b):
            raise InputError(
                f"module {index} has A {list(weights.a.shape)} and B {list(weights.b.shape)}, "
                f"not {a} and {b}",
                where="write_adapter",
            )
    return modules
