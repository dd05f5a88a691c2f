"""The interface of engines that take named tensors and give named tensors: any model but a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from optc.system.foreign.typed_json import Count

#: Types of elements, as NumPy and ml_dtypes call them.
DType = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


class DimRange(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes that a symbolic dimension may have, both ends included."""

    least: Count
    most: Count

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(f"a dimension of {self.least} to {self.most} has no size")


class TensorSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A named tensor.

    Attributes:
        name: Unique among the inputs, or among the outputs.
        dtype: Of its elements.
        dims: Each a size, or the name of a symbolic dimension.
    """

    name: str
    dtype: DType
    dims: tuple[Count | str, ...]


class TensorsInterface(Struct, frozen=True, tag="tensors", forbid_unknown_fields=True):
    """Tensors in, tensors out.

    Attributes:
        inputs: In the order of the model's arguments.
        outputs: In the order of its results.
        symbols: Bounds of every symbolic dimension by name. Tensors that name the same one have the
            same size there in each call; one that only outputs name depends on the data.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: dict[str, DimRange] = {}

    def __post_init__(self) -> None:
        for what, tensors in (("input", self.inputs), ("output", self.outputs)):
            _check_names(what, tensors)
        every = [dim for tensor in (*self.inputs, *self.outputs) for dim in tensor.dims]
        named = {dim for dim in every if isinstance(dim, str)}
        for name in sorted(named ^ self.symbols.keys()):
            problem = "has no bounds" if name in named else "is no tensor's"
            raise ValueError(f"the dimension {name[:80]!r} {problem}")


def _check_names(what: str, tensors: Sequence[TensorSpec]) -> None:
    if not tensors:
        raise ValueError(f"there is no {what}")
    for name, count in Counter(tensor.name for tensor in tensors).items():
        if count > 1:
            raise ValueError(f"two {what}s are called {name[:80]!r}")
