"""Keys and values of few bits in NumPy: what a cache of these bits gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Integer groups: channels of a group, and how many scales there are.
_CHANNELS, _SCALES = 16, 16
#: By bits of a code: largest integer of a head, and what scales are multiples of.
_INTEGERS = {4: (119, 1), 3: (112, 2), 2: (120, 5)}
#: Of a head, where a scale of its own is counted.
_HEAD = 64


class Rounding(Protocol):
    """A way to hold rows of keys or values."""

    @property
    def bits_per_value(self) -> float:
        """Scales included."""
        ...

    @property
    def tokens(self) -> int:
        """Consecutive tokens that share a scale: a row of them is known when all are."""
        ...

    def represented(self, rows: Array) -> Array:
        """Rows [S, H, D] as they come back."""
        ...


@dataclass(frozen=True)
class Codes:
    """Evenly spaced levels of groups, with a scale and a least value of 16 bits each.

    Attributes:
        bits: Of a code.
        axis: ``channel``: a group is a channel of consecutive tokens; ``token``: of consecutive
            channels of a token.
        group: Values of a group. Groups of tokens begin at multiples of it.
    """

    bits: int
    axis: str = "token"
    group: int = 32

    @property
    def bits_per_value(self) -> float:
        """Scales included."""
        return self.bits + 32 / self.group

    @property
    def tokens(self) -> int:
        """Those of a group."""
        return self.group if self.axis == "channel" else 1

    def represented(self, rows: Array) -> Array:
        """Rows [S, H, D] as they come back; a last group may have fewer tokens."""
        if self.axis == "token":
            grouped = rows.reshape(*rows.shape[:2], -1, self.group)
            return self._grouped(grouped).reshape(rows.shape)
        whole = len(rows) // self.group * self.group
        parts = [rows[:whole].reshape(-1, self.group, *rows.shape[1:]), rows[None, whole:]]
        found = [self._grouped(np.moveaxis(part, 1, -1)) for part in parts if part.size]
        back = [np.moveaxis(one, -1, 1).reshape(-1, *rows.shape[1:]) for one in found]
        return np.concatenate(back)

    def _grouped(self, groups: Array) -> Array:
        """Groups are the last axis."""
        top = 2**self.bits - 1
        low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
        scale = ((high - low) / top).astype(np.float16).astype(np.float32)
        scale[scale == 0] = 1
        low = low.astype(np.float16).astype(np.float32)
        return np.clip(np.round((groups - low) / scale), 0, top) * scale + low


@dataclass(frozen=True)
class IntegerGroups:
    """As int4 pools have it (`optc.ir.functions.int4_groups`), and the same of 3 and 2 bits: a
    head's values become integers, and 16 channels share an integer scale and a zero point.

    Attributes:
        bits: Of a code.
    """

    bits: int = 4
    tokens: int = 1

    @property
    def bits_per_value(self) -> float:
        """Four bits for a group's scale, its zero point, and 16 bits for a head's scale."""
        return self.bits + (4 + self.bits) / _CHANNELS + 16 / _HEAD

    def represented(self, rows: Array) -> Array:
        """Rows [S, H, D] as they come back."""
        largest, multiple = _INTEGERS[self.bits]
        top = 2**self.bits - 1
        step = _bfloat16(np.abs(rows).max(-1, keepdims=True).astype(np.float32) / largest)
        step[step == 0] = 1
        whole = np.round(rows / step).reshape(*rows.shape[:2], -1, _CHANNELS)
        low = np.minimum(whole.min(-1, keepdims=True), 0)
        high = np.maximum(whole.max(-1, keepdims=True), 0)
        exact = (high - low) / (top * multiple)
        wide, tight = (
            _of_scale(whole, low, np.clip(near(exact), 1, _SCALES) * multiple, top)
            for near in (np.ceil, np.floor)
        )
        errors = [np.square(one - whole).sum(-1, keepdims=True) for one in (wide, tight)]
        return np.where(errors[1] < errors[0], tight, wide).reshape(rows.shape) * step


@dataclass(frozen=True)
class Int8:
    """The rounding of int8 pools."""

    bits_per_value: float = 8 + 32 / _HEAD
    tokens: int = 1

    def represented(self, rows: Array) -> Array:
        """Rows [S, H, D] as they come back."""
        scale = np.abs(rows).max(-1, keepdims=True) / np.float32(127)
        scale[scale == 0] = 1
        return np.round(rows / scale) * scale


@dataclass(frozen=True)
class Float32:
    """Nothing is rounded."""

    bits_per_value: float = 32
    tokens: int = 1

    def represented(self, rows: Array) -> Array:
        """The rows."""
        return rows


def _of_scale(whole: Array, low: Array, scale: Array, top: int) -> Array:
    point = np.minimum(np.round(-low / scale), top)
    return (np.clip(np.round(whole / scale) + point, 0, top) - point) * scale


def _bfloat16(values: Array) -> Array:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)
