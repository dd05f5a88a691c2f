"""Tensors whose numbers say where they are: in which parameter, row and column.

The importer and the passes work on them as on a checkpoint; what their graph then reads says what
they did. Numbers of vectors are different from all others, since passes may make constants of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from optc.importer.conversion.tensor import Float32, Leaf
from optc.ir.stacked_weights import Box

#: Numbers of vectors are multiples of it in 0.5 to 1, which float32 holds exactly.
_STEP = 2.0**-24
#: So many of them there are.
_COUNT = 1 << 23
#: Odd, so that its multiples modulo `_COUNT` are all different, and neighbours lie apart.
_SCRAMBLE = 3_447_679
_BACK = pow(_SCRAMBLE, -1, _COUNT)


class Mode(Enum):
    """The values that a marked tensor has."""

    #: Numbers as a model has, for passes that try out what a part of the graph computes.
    NOISE = "noise"
    ZERO = "zero"
    ONE = "one"
    #: The parameter's number.
    PARAMETER = "parameter"
    #: Rows are counted through all axes but the last.
    ROW = "row"
    COLUMN = "column"


class Marks:
    """Marked tensors of all parameters, which read alike.

    Args:
        shapes: Of the parameters by name.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.mode = Mode.NOISE
        self.names = tuple(shapes)
        self.shapes = dict(shapes)
        sizes = [shape[0] if len(shape) == 1 else 0 for shape in shapes.values()]
        self._starts = np.cumsum([0, *sizes])
        self.tensors = {
            name: MarkedTensor(self, number, name, shape, int(self._starts[number]))
            for number, (name, shape) in enumerate(shapes.items())
        }

    def places(self, values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], ...] | None:
        """The parameters' numbers and the elements that ``values`` are noise of; None if a value is
        of no vector."""
        scaled = (values.astype(np.float64) - 0.5) / _STEP
        if not ((scaled >= 0) & (scaled < _COUNT) & (scaled == np.rint(scaled))).all():
            return None
        found = (scaled.astype(np.int64) * _BACK) % _COUNT
        if (found >= self._starts[-1]).any():
            return None
        numbers = np.searchsorted(self._starts, found, side="right") - 1
        return numbers, found - self._starts[numbers]


class MarkedTensor:
    """One parameter; a tensor of a checkpoint to who reads it."""

    def __init__(
        self, marks: Marks, number: int, name: str, shape: tuple[int, ...], start: int
    ) -> None:
        self._marks, self._number, self._start = marks, number, start
        self.name, self.shape = name, shape

    @property
    def where(self) -> str:
        """Its name."""
        return self.name

    @property
    def leaves(self) -> Sequence[Leaf]:
        """No files."""
        return []

    @property
    def given(self) -> None:
        """It is not quantized."""
        return None

    def read_rows(self, start: int, stop: int) -> Float32:
        """Rows ``start:stop`` along axis 0, shape [stop - start, ...]."""
        return self.read_box(((start, stop), *((0, size) for size in self.shape[1:])))

    def read_box(self, box: Box) -> Float32:
        """The values in ``box``, by the mode."""
        shape, mode = tuple(stop - start for start, stop in box), self._marks.mode
        constants = {Mode.ZERO: 0, Mode.ONE: 1, Mode.PARAMETER: self._number}
        if mode in constants:
            return np.full(shape, constants[mode], np.float32)
        rows, columns = self._numbers(box)
        if mode is Mode.ROW:
            return np.broadcast_to(rows, shape).astype(np.float32)
        if mode is Mode.COLUMN:
            return np.broadcast_to(columns, shape).astype(np.float32)
        return self._noise(rows, columns, shape)

    def _numbers(self, box: Box) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Row and column of each element, in shapes that broadcast; a vector is one column."""
        *leading, last = box if len(box) > 1 else (*box, (0, 1))
        rows = np.zeros((), np.int64)
        sizes = self.shape[:-1] if len(box) > 1 else self.shape
        for size, (start, stop) in zip(sizes, leading, strict=True):
            rows = rows[..., None] * size + np.arange(start, stop)
        if len(box) == 1:
            return rows, np.zeros_like(rows)
        return rows[..., None], np.arange(*last)

    def _noise(
        self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], shape: tuple[int, ...]
    ) -> Float32:
        if len(shape) == 1:
            whole = ((rows + self._start) * _SCRAMBLE) % _COUNT
            return (0.5 + whole * _STEP).astype(np.float32)
        width = self.shape[-1]
        with np.errstate(over="ignore"):
            mixed = (rows * width + columns).astype(np.uint64) + np.uint64(self._number << 40)
            for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
                mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(factor)
        uniform = (mixed >> np.uint64(40)).astype(np.float64) * 2.0**-24 - 0.5
        return (uniform * 5 * width**-0.5).astype(np.float32)
