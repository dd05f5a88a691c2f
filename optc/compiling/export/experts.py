"""Weights of experts, stacked in the model's class, as readers have them: gate, up and down.

The class has two parameters a layer: ``gate_up_proj`` [E, 2N, K], each expert's gate above its up,
and ``down_proj`` [E, K, N]. An engine has the rows of all experts below each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.compiling.export.parameters import Weight, rows_between, shape_of
from optc.errors import UnsupportedError
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import permute_rows

#: Of stacked experts: [E, N, K].
_AXES = 3
_BOTH, _DOWN = ".gate_up_proj", ".down_proj"
#: By type of model: where the experts of published checkpoints are in a layer, what else is there
#: under that name, and what gate, up and down are called.
_APART = {
    "mixtral": (".block_sparse_moe.", {"gate": "w1", "up": "w3", "down": "w2"}),
    "qwen3_moe": (".mlp.", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
}
_INSIDE, _EXPERTS = ".mlp.", ".mlp.experts"


@dataclass(frozen=True)
class Stack:
    """One matrix of every expert of a layer.

    Attributes:
        experts: Name of the class's module, which has the parameter.
        part: ``gate``, ``up`` or ``down``.
        count: Experts, E.
        weight: Their rows below each other.
    """

    experts: str
    part: str
    count: int
    weight: Weight

    @property
    def shape(self) -> tuple[int, ...]:
        """[E, N, K]."""
        rows, *inner = shape_of(self.weight)
        return self.count, rows // self.count, *inner


def stacks_of(name: str, weight: Weight, shape: tuple[int, ...]) -> list[Stack]:
    """The matrices in a parameter; empty if it is none of experts.

    Args:
        name: Of the parameter.
        weight: Its rows.
        shape: That the class gives it.
    """
    if len(shape) != _AXES:
        return []
    if name.endswith(_DOWN):
        return [Stack(name.removesuffix(_DOWN), "down", shape[0], weight)]
    if not name.endswith(_BOTH):
        return []
    half = shape[1] // 2
    first = np.arange(shape[0])[:, None] * shape[1] + np.arange(half)
    experts = name.removesuffix(_BOTH)
    return [
        Stack(experts, part, shape[0], taken(weight, (first + begin).reshape(-1)))
        for part, begin in (("gate", 0), ("up", half))
    ]


def check_experts(kind: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that experts of a type of model can lie apart.

    Raises:
        UnsupportedError: It is not known what they are called, or they lie in another way.
    """
    stacks = [name for name, shape in shapes.items() if len(shape) == _AXES]
    if stacks and kind not in _APART:
        raise UnsupportedError(
            f"it is not known what experts of {kind} are called where they lie apart",
            where=stacks[0],
            hint="use --format hf",
        )


def taken(weight: Weight, order: npt.NDArray[np.int64]) -> Weight:
    """Rows of a weight by their numbers."""
    if isinstance(weight, QuantizedRows):
        return weight.taken(order)
    return permute_rows(weight, order)


def experts_apart(
    weights: Mapping[str, Weight], shapes: Mapping[str, tuple[int, ...]], kind: str
) -> Iterator[tuple[str, Weight]]:
    """The weights by their names in published checkpoints, where experts lie apart.

    Args:
        weights: By the names of the class's parameters.
        shapes: Of these.
        kind: Type of the model.
    """
    for name, weight in weights.items():
        stacks = stacks_of(name, weight, shapes[name])
        if not stacks:
            yield published(name, kind), weight
        for stack in stacks:
            _, n, _ = stack.shape
            for expert in range(stack.count):
                part = rows_between(stack.weight, expert * n, (expert + 1) * n)
                yield expert_name(stack, expert, kind), part


def published(name: str, kind: str) -> str:
    """The name that a parameter beside experts, the router, has in published checkpoints."""
    return name.replace(_INSIDE, _APART[kind][0]) if kind in _APART else name


def expert_name(stack: Stack, expert: int, kind: str) -> str:
    """The name of one expert's matrix in published checkpoints."""
    inside, parts = _APART[kind]
    experts = stack.experts.removesuffix(_EXPERTS) + inside + "experts"
    return f"{experts}.{expert}.{parts[stack.part]}.weight"
