"""The tensors of a checkpoint that belong to one weight, by the ends of their names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.quantized.decoding import e4m3, e8m0
from optc.importer.safetensors import StoredTensor

_FLOATS = ("F64", "F32", "F16", "BF16")
_HINT = "the checkpoint is damaged, or of a newer version of its format"


@dataclass
class Parts:
    """Tensors of one layer by the ends of their names.

    Attributes:
        name: Of the weight.
        found: By end, such as ``qweight``.
    """

    name: str
    found: dict[str, StoredTensor] = field(default_factory=dict)

    @property
    def leaves(self) -> list[StoredTensor]:
        """All tensors."""
        return list(self.found.values())

    def get(self, end: str) -> StoredTensor | None:
        """The tensor of this end, if it is there."""
        return self.found.get(end)

    def one(self, end: str, *kinds: str, axes: int | None = None) -> StoredTensor:
        """The tensor of this end.

        Raises:
            InputError: It is missing, or of another type or number of axes.
        """
        tensor = self.found.get(end)
        if tensor is None:
            raise InputError(f"{end} is missing", where=self.name, hint=_HINT)
        wrong = axes is not None and len(tensor.shape) != axes
        if (kinds and tensor.dtype not in kinds) or wrong:
            raise InputError(
                f"the tensor is {tensor.dtype} of shape {list(tensor.shape)}, {end} is "
                f"{' or '.join(kinds) or 'anything'} of {axes or 'any number of'} axes",
                where=tensor.where,
                hint=_HINT,
            )
        return tensor

    def shaped(self, end: str, shape: tuple[int, ...], *kinds: str) -> StoredTensor:
        """The tensor of this end, of this shape.

        Raises:
            InputError: It is missing, or another.
        """
        tensor = self.one(end, *kinds)
        if tensor.shape != shape:
            raise InputError(
                f"the tensor has shape {list(tensor.shape)}, not {list(shape)}",
                where=tensor.where,
                hint=_HINT,
            )
        return tensor

    def divided(self, whole: int, parts: int, end: str) -> int:
        """``whole`` over ``parts``, which must divide it.

        Raises:
            InputError: It does not.
        """
        if not parts or whole % parts:
            raise InputError(
                f"{whole} columns cannot be cut into {parts} groups",
                where=self.one(end).where,
                hint=_HINT,
            )
        return whole // parts


def numbers(tensor: StoredTensor, box: tuple[tuple[int, int], ...] | None = None) -> Float32:
    """Elements in ``box`` or all, as float32, of scales of any type of floats."""
    if tensor.dtype == "F8_E4M3":
        return e4m3(tensor.read_stored(box))
    if tensor.dtype in ("F8_E8M0", "U8"):
        return e8m0(tensor.read_stored(box))
    if tensor.dtype not in _FLOATS:
        raise InputError(f"scales of type {tensor.dtype}", where=tensor.where, hint=_HINT)
    return tensor.read_box(box or tuple((0, size) for size in tensor.shape))


def scalar(tensor: StoredTensor) -> np.float32:
    """The only number of a tensor.

    Raises:
        InputError: It has more.
    """
    if math.prod(tensor.shape) != 1:
        raise InputError(
            f"the tensor has shape {list(tensor.shape)}, not one number",
            where=tensor.where,
            hint=_HINT,
        )
    return np.float32(numbers(tensor).reshape(-1)[0])


def weights(
    tensors: Mapping[str, StoredTensor],
    ends: Mapping[str, str],
    key: str,
    make: Callable[[Parts], Tensor],
) -> dict[str, Tensor]:
    """Weights made of tensors whose names end alike, and the floats that are in no weight.

    Args:
        tensors: By name.
        ends: Ends of names, and what the weight's name has in their place.
        key: The end that every quantized weight has.
        make: Makes the weight.

    Raises:
        InputError: A weight is there twice.
    """
    groups: dict[str, Parts] = {}
    for name, tensor in tensors.items():
        for end, instead in ends.items():
            if name.endswith(end):
                weight = name.removesuffix(end) + instead
                groups.setdefault(weight, Parts(weight)).found[end[1:]] = tensor
                break
    made = {name: one for name, one in groups.items() if key in one.found}
    used = {tensor.name for one in made.values() for tensor in one.leaves}
    found: dict[str, Tensor] = {
        name: tensor
        for name, tensor in tensors.items()
        if name not in used and tensor.dtype in _FLOATS
    }
    for name, parts in made.items():
        if name in found:
            raise InputError("is there quantized and as floats", where=found[name].where)
        found[name] = make(parts)
    return found
