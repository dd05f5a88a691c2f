"""Tensors that are others in another order: two axes exchanged, or an axis interleaved.

As in `optc.importer.conversion.views` nothing is read before a box is asked for; `Interleaved`
reads up to twice the box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.conversion.views import View, replaced
from optc.ir.stacked_weights import Box

T = TypeVar("T")


@dataclass(frozen=True)
class Swapped(View):
    """A tensor with two axes exchanged."""

    name: str
    part: Tensor
    axes: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part, exchanged."""
        return _exchanged(self.part.shape, self.axes)

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    def read_box(self, box: Box) -> Float32:
        """The box of the part, exchanged."""
        found = self.part.read_box(_exchanged(box, self.axes))
        return np.ascontiguousarray(found.swapaxes(*self.axes))


@dataclass(frozen=True)
class Interleaved(View):
    """A tensor whose axis is [n, 2] taken as [2, n], or with ``inverse`` [2, n] taken as [n, 2].

    Raises:
        InputError: The axis is odd.
    """

    name: str
    part: Tensor
    axis: int
    inverse: bool

    def __post_init__(self) -> None:
        """Check the axis."""
        if self.part.shape[self.axis] % 2:
            raise InputError(
                f"axis {self.axis} of shape {list(self.part.shape)} has no halves",
                where=self.part.where,
                hint="is config.json the one of these weights?",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part."""
        return self.part.shape

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    def read_box(self, box: Box) -> Float32:
        """The box, of rows that are read from both halves, or from twice as many neighbours."""
        start, stop = box[self.axis]
        half = self.shape[self.axis] // 2
        if self.inverse:
            low, high = start // 2, -(-stop // 2)
            halves = [self._read(box, low, high), self._read(box, half + low, half + high)]
            pairs = np.stack(halves, axis=self.axis + 1)
            joined = pairs.reshape(replaced(halves[0].shape, self.axis, 2 * (high - low)))
            return self._every(joined, slice(start - 2 * low, stop - 2 * low))
        found = [
            self._every(self._read(box, 2 * low, 2 * high), slice(odd, None, 2))
            for odd in (0, 1)
            for low, high in [(max(start - odd * half, 0), min(stop - odd * half, half))]
            if low < high
        ]
        return np.concatenate(found, axis=self.axis) if len(found) != 1 else found[0]

    def _read(self, box: Box, start: int, stop: int) -> Float32:
        return self.part.read_box(replaced(box, self.axis, (start, stop)))

    def _every(self, array: Float32, rows: slice) -> Float32:
        return array[(slice(None),) * self.axis + (rows,)]


def _exchanged(values: tuple[T, ...], axes: tuple[int, int]) -> tuple[T, ...]:
    found = list(values)
    found[axes[0]], found[axes[1]] = found[axes[1]], found[axes[0]]
    return tuple(found)
