"""The rows of a graph's weight in the class: whole rows, columns or elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.compiling.export.origins.marks import Marks, Mode
from optc.ir.stacked_weights import StackedWeight
from optc.ir.weights import LazyWeight

Ints = npt.NDArray[np.int64]


class Kind(Enum):
    """The kind of thing that a row of the graph's weight is."""

    ROWS = "rows"
    COLUMNS = "columns"
    #: Of a vector, whose rows are single numbers.
    ELEMENTS = "elements"


@dataclass(frozen=True)
class Origin:
    """The origin of a weight's rows: x = offset + slope p, p being the parameter's.

    Attributes:
        shape: Of the weight by rows, [N] or [N, K].
        kind: What a row is.
        number: int64 [N], the parameter.
        index: int64 [N], the row, or the column, or the element.
        first: int64 [N], of columns the first of the rows that they go through: an expert's.
        offset, slope: Of all numbers alike.
    """

    shape: tuple[int, ...]
    kind: Kind
    number: Ints
    index: Ints
    first: Ints
    offset: float = 0.0
    slope: float = 1.0


def origin_of(tensor: ir.TensorProtocol | None, marks: Marks) -> Origin | None:
    """The origin of an initializer of a graph that was made of ``marks``; None of one that is made
    of no parameter, or of numbers of some by a computation."""
    if isinstance(tensor, StackedWeight):
        tensor = tensor.fold()
    if isinstance(tensor, LazyWeight):
        return _of_weight(tensor, marks)
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 1:
        return None
    places = marks.places(tensor.numpy())
    if places is None:
        return None
    number, index = places
    return Origin(tuple(tensor.numpy().shape), Kind.ELEMENTS, number, index, np.zeros_like(index))


def depends(tensor: ir.TensorProtocol | None, marks: Marks) -> bool:
    """A weight of such a graph is computed from parameters."""
    if not isinstance(tensor, LazyWeight):
        return False
    low, one = (_read(tensor, marks, mode, 0, 1) for mode in (Mode.ZERO, Mode.ONE))
    return not np.array_equal(low, one)


def _read(
    weight: LazyWeight, marks: Marks, mode: Mode, start: int, stop: int
) -> npt.NDArray[np.float64]:
    """Rows in a mode, each as a row of numbers."""
    marks.mode = mode
    try:
        rows = np.asarray(weight.read_rows(start, stop), np.float64)
    finally:
        marks.mode = Mode.NOISE
    return rows.reshape(stop - start, -1)


def _of_weight(weight: LazyWeight, marks: Marks) -> Origin | None:
    if len(weight.rows_shape) not in (1, 2) or not math.prod(weight.rows_shape):
        return None
    parts = [_of_tile(weight, marks, start, stop) for start, stop in weight.tiles()]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len({(p.kind, p.offset, p.slope) for p in found}) > 1:
        return None
    first = found[0]
    number, index, begin = (
        np.concatenate(rows)
        for rows in zip(*((p.number, p.index, p.first) for p in found), strict=True)
    )
    return Origin(weight.rows_shape, first.kind, number, index, begin, first.offset, first.slope)


def _of_tile(weight: LazyWeight, marks: Marks, start: int, stop: int) -> Origin | None:
    offset, one = (_read(weight, marks, mode, start, stop) for mode in (Mode.ZERO, Mode.ONE))
    slope = one - offset
    if np.ptp(offset) or np.ptp(slope) or not slope.flat[0]:
        return None
    low, step = float(offset.flat[0]), float(slope.flat[0])

    def numbers(mode: Mode) -> Ints:
        return np.rint((_read(weight, marks, mode, start, stop) - low) / step).astype(np.int64)

    number = numbers(Mode.PARAMETER)
    if np.ptp(number, axis=1).any():
        return None
    return _arranged(
        weight, marks, number[:, 0], numbers(Mode.ROW), numbers(Mode.COLUMN), low, step
    )


def _arranged(
    weight: LazyWeight,
    marks: Marks,
    number: Ints,
    rows: Ints,
    columns: Ints,
    low: float,
    step: float,
) -> Origin | None:
    shape = weight.rows_shape
    widths = np.array([marks.shapes[name][-1] for name in marks.names])
    axes = np.array([len(marks.shapes[name]) for name in marks.names])
    across = np.arange(columns.shape[1])
    if len(shape) == 1:
        flat = np.where(axes[number] > 1, rows[:, 0] * widths[number] + columns[:, 0], rows[:, 0])
        return Origin(shape, Kind.ELEMENTS, number, flat, np.zeros_like(flat), low, step)
    whole = (axes[number] > 1) & (widths[number] == shape[1])
    if whole.all() and (columns == across).all() and not np.ptp(rows, axis=1).any():
        return Origin(shape, Kind.ROWS, number, rows[:, 0], np.zeros_like(number), low, step)
    if (rows - rows[:, :1] == across).all() and not np.ptp(columns, axis=1).any():
        return Origin(shape, Kind.COLUMNS, number, columns[:, 0], rows[:, 0], low, step)
    return None
