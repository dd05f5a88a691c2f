"""Tensors of a base with what an adapter adds to them: a box is computed when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.conversion.views import View
from optc.ir.stacked_weights import Box
from optc.ir.weights import TILE_ELEMENTS


@dataclass(frozen=True)
class LowRank(View):
    """A matrix W [N, K] with scaling B A added (Hu et al. 2021), and with a magnitude m the rows of
    the sum brought to the lengths m (DoRA, Liu et al. 2024).

    Attributes:
        part: W; turned where it is [K, N], as in layers of GPT-2 and in embeddings.
        down, up: A [r, K] and B [N, r].
        magnitude: m [N].
    """

    name: str
    part: Tensor
    down: Tensor
    up: Tensor
    scaling: float
    turned: bool
    magnitude: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of W."""
        return self.part.shape

    @property
    def given(self) -> None:
        """The sum is on no grid, whatever W is stored in."""
        return None

    def made_of(self) -> Sequence[Tensor]:
        """W, A, B and m."""
        own = [self.part, self.down, self.up]
        return own if self.magnitude is None else [*own, self.magnitude]

    def read_box(self, box: Box) -> Float32:
        """The box, of whole rows."""
        (start, stop), columns = box
        found = self._sum(start, stop)
        if self.magnitude is not None:
            found *= self._factors(self.magnitude, found, start, stop)
        return found[:, slice(*columns)]

    def _sum(self, start: int, stop: int) -> Float32:
        rank = self.down.shape[0]
        if self.turned:
            left = self.down.read_box(((0, rank), (start, stop))).T
            right = self.up.read_rows(0, self.up.shape[0]).T
        else:
            left = self.up.read_rows(start, stop)
            right = self.down.read_rows(0, rank)
        added: Float32 = (left @ right) * np.float32(self.scaling)
        return self.part.read_rows(start, stop) + added

    def _factors(self, magnitude: Tensor, rows: Float32, start: int, stop: int) -> Float32:
        """The factors of rows, or of columns where W is turned."""
        if self.turned:
            every = magnitude.read_rows(0, magnitude.shape[0])
            return (every / self._lengths_of_columns).astype(np.float32)
        lengths = np.linalg.norm(rows, axis=1).astype(np.float32)
        return (magnitude.read_rows(start, stop) / lengths)[:, None]

    @cached_property
    def _lengths_of_columns(self) -> npt.NDArray[np.float64]:
        rows, columns = self.shape
        step = max(1, TILE_ELEMENTS // columns)
        total = np.zeros(columns)
        for start in range(0, rows, step):
            part = self._sum(start, min(start + step, rows))
            total += np.square(part, dtype=np.float64).sum(axis=0)
        return np.sqrt(total)


@dataclass(frozen=True)
class Rows(View):
    """A matrix of which some rows are those of another one.

    Attributes:
        part: The matrix.
        own: The other rows, in order.
        index: int64, the row of the part that each of them replaces.
    """

    name: str
    part: Tensor
    own: Tensor
    index: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part."""
        return self.part.shape

    @property
    def given(self) -> None:
        """Not all rows are on a grid."""
        return None

    def made_of(self) -> Sequence[Tensor]:
        """Both."""
        return [self.part, self.own]

    def read_box(self, box: Box) -> Float32:
        """The box of the part, and of the other rows that lie in it."""
        (start, stop), *inner = box
        found = np.array(self.part.read_box(box))
        for at in np.flatnonzero((self.index >= start) & (self.index < stop)).tolist():
            row = self.own.read_box(((at, at + 1), *inner))
            found[int(self.index[at]) - start] = row[0]
        return found


@dataclass(frozen=True)
class Added(View):
    """A vector with another one added, times a number."""

    name: str
    part: Tensor
    other: Tensor
    scaling: float

    @property
    def shape(self) -> tuple[int, ...]:
        """That of both."""
        return self.part.shape

    def made_of(self) -> Sequence[Tensor]:
        """Both."""
        return [self.part, self.other]

    def read_box(self, box: Box) -> Float32:
        """The sum."""
        return self.part.read_box(box) + self.other.read_box(box) * np.float32(self.scaling)
