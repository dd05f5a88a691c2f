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
            for module in spec.modules:
                width = len(module.parts) * spec.rank
                for shape in ((spec.max, module.k, width), (spec.max, spec.rank, module.n)):
                    self._arrays.append(pages(shape, "float32"))
        self.tensors = [wrap(array) for array in self._arrays]

    def write(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Set one slot, modules without weights to zero.

        Raises:
            InputError: The engine has no such slot, or a shape does not fit.
        """
        if self._spec is None or not 0 <= slot < self._spec.max:
            most = self._spec.max if self._spec else 0
            raise InputError(f"adapter slot {slot} of {most}", where="write_adapter")
        if len(modules) != len(self._spec.modules):
            raise InputError(
                f"{len(modules)} modules for {len(self._spec.modules)}", where="write_adapter"
            )
        for index, weights in enumerate(modules):
            a, b = self._arrays[2 * index][slot], self._arrays[2 * index + 1][slot]
            if weights is None:
                a[...], b[...] = 0, 0
                continue
            if weights.a.shape != a.shape or weights.b.shape != b.shape:
                raise InputError(
                    f"module {index} has A {list(weights.a.shape)} and B {list(weights.b.shape)}, "
                    f"not {list(a.shape)} and {list(b.shape)}",
                    where="write_adapter",
                )
            np.copyto(a, weights.a)
            np.copyto(b, weights.b)

    def release(self) -> None:
        """Drop all pools."""
        self.tensors.clear()
        self._arrays.clear()
