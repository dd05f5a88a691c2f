"""Views of single rows: taken in another order, or with a number added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.conversion.views import View
from optc.ir.stacked_weights import Box
from optc.ir.weights import Given


@dataclass(frozen=True)
class Taken(View):
    """The rows of a tensor in another order.

    Attributes:
        index: int64 [rows], the row of the part that each is.
    """

    name: str
    part: Tensor
    index: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """As many rows as the index has."""
        return (len(self.index), *self.part.shape[1:])

    @property
    def given(self) -> Given | None:
        """The grid of the rows, which keep theirs wherever they stand."""
        given = self.part.given
        if given is None or given.rows is None:
            return given
        return Given(given.label, given.rows.taken(self.index))

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    def read_box(self, box: Box) -> Float32:
        """The rows, out of all between the first and the last of them."""
        (start, stop), *inner = box
        wanted = self.index[start:stop]
        low = int(wanted.min())
        found = self.part.read_box(((low, int(wanted.max()) + 1), *inner))
        return found[wanted - low]


@dataclass(frozen=True)
class Shifted(View):
    """A tensor with a number added to all of its own."""

    name: str
    part: Tensor
    added: float

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the part."""
        return self.part.shape

    def made_of(self) -> Sequence[Tensor]:
        """The part."""
        return [self.part]

    def read_box(self, box: Box) -> Float32:
        """The sum."""
        return self.part.read_box(box) + np.float32(self.added)
