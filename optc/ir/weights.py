"""Lazy weights: tensors of the IR that are read, cast and quantized row by row on demand.

A weight matrix is kept as *rows by output channel*, [N, K], as checkpoints store it, whatever
the graph sees: a MatMul operand of shape [K, N] is the same weight with ``transposed`` set.
Readers stream over N, so that no stage needs more than a tile of a weight in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
RowReader = Callable[[int, int], Array]

#: Elements of a tile when a weight is streamed: 4 MiB in float32, a few times that while it is
#: quantized and packed, for each thread that does so.
TILE_ELEMENTS = 1 << 20
#: Rows that are read and dropped rather than read around.
_GAP = 8


class Grid(Protocol):
    """Values, scales and zero points of a weight: `optc.ir.quantized_rows.QuantizedRows`, whose
    parts are weights themselves."""

    def above(self, others: Sequence[Self]) -> Self | None:
        """The rows of all below each other; None if they are of different kinds."""

    def taken(self, index: Array) -> Self:
        """The rows of these numbers."""

    def scaled(self, factors: Array) -> Self:
        """Each row by its factor."""


@dataclass(frozen=True)
class Given:
    """The form in which a quantized checkpoint already holds a weight.

    Attributes:
        label: Its type in the checkpoint's words, such as ``Q4_K``.
        rows: The grid, where it is one of those that engines have; what `LazyWeight.read_rows`
            gives is then exactly what these stand for. None where it is another, or where the
            weight was changed on its way.
    """

    label: str
    rows: Grid | None = None

    def taken(self, start: int, stop: int) -> Given:
        """Of the rows ``start:stop``."""
        if self.rows is None:
            return self
        return Given(self.label, self.rows.taken(np.arange(start, stop)))

    def scaled(self, factors: Array) -> Given | None:
        """Each row by its factor: of powers of two, which scales take without rounding; None of
        others."""
        if not (np.abs(np.frexp(factors)[0]) == 0.5).all():
            return None
        return self if self.rows is None else Given(self.label, self.rows.scaled(factors))

    @staticmethod
    def joined(parts: Sequence[Given | None]) -> Given | None:
        """Of weights below each other; None if none of them was quantized."""
        found = [part for part in parts if part is not None]
        if not found:
            return None
        label = ", ".join(dict.fromkeys(part.label for part in found))
        rows = [part.rows for part in found if part.rows is not None]
        if len(rows) < len(parts):
            return Given(label)
        return Given(label, rows[0].above(rows[1:]))


class LazyWeight(ir.LazyTensor):
    """A tensor whose rows are produced on demand; nothing is cached.

    Args:
        read_rows: ``read_rows(start, stop)`` gives rows [stop - start, ...] in ``dtype``.
        rows_shape: Shape by rows: [N, K], or [N] or [N, G] for scales.
        dtype: Element type the reader returns.
        name: Name for messages.
        transposed: The graph sees the transpose (2-D only).
        given: How the checkpoint holds it, where that is quantized.
    """

    def __init__(
        self,
        read_rows: RowReader,
        rows_shape: Sequence[int],
        dtype: ir.DataType,
        name: str,
        *,
        transposed: bool = False,
        given: Given | None = None,
    ) -> None:
        self.read_rows = read_rows
        self.given = given
        self.rows_shape = tuple(rows_shape)
        self.transposed = transposed
        shape = self.rows_shape[::-1] if transposed else self.rows_shape
        super().__init__(self._evaluate, dtype=dtype, shape=ir.Shape(shape), name=name, cache=False)

    def _evaluate(self) -> ir.Tensor[Array]:
        rows = self.read_rows(0, self.rows_shape[0])
        array = rows.T if self.transposed else rows
        return ir.Tensor(np.ascontiguousarray(array), dtype=self.dtype, name=self.name)

    def transpose(self) -> LazyWeight:
        """The same weight seen the other way round."""
        return LazyWeight(
            self.read_rows,
            self.rows_shape,
            self.dtype,
            self.name or "",
            transposed=not self.transposed,
            given=self.given,
        )

    def map_rows(
        self, function: Callable[[Array], Array], dtype: ir.DataType, width: int | None = None
    ) -> LazyWeight:
        """A weight whose rows are ``function(rows)``; ``width`` replaces the trailing size."""
        shape = self.rows_shape if width is None else (self.rows_shape[0], width)
        read = self.read_rows
        return LazyWeight(
            lambda start, stop: function(read(start, stop)),
            shape,
            dtype,
            self.name or "",
            transposed=self.transposed,
            given=None if self.given is None else Given(self.given.label),
        )

    def tiles(self, multiple: int = 1) -> Iterator[tuple[int, int]]:
        """Row ranges that cover the weight, each a multiple of ``multiple`` but the last."""
        total = self.rows_shape[0]
        width = int(np.prod(self.rows_shape[1:], dtype=np.int64)) or 1
        step = max(1, TILE_ELEMENTS // width // multiple) * multiple
        for start in range(0, total, step):
            yield start, min(start + step, total)


def as_lazy(tensor: ir.TensorProtocol, *, transposed: bool = False) -> LazyWeight:
    """View any tensor as a `LazyWeight`; with ``transposed`` its rows are the columns."""
    if isinstance(tensor, LazyWeight):
        if tensor.transposed != transposed:
            raise ValueError(f"{tensor.name}: rows of the other axis were asked for")
        return tensor
    array = tensor.numpy()
    rows = array.T if transposed else array
    return LazyWeight(
        lambda start, stop: np.ascontiguousarray(rows[start:stop]),
        rows.shape,
        ir.DataType(tensor.dtype),
        tensor.name or "",
        transposed=transposed,
    )


def concatenate_rows(weights: Sequence[LazyWeight], name: str) -> LazyWeight:
    """The weights stacked along N; all must share dtype, K and orientation."""
    first = weights[0]
    bounds = np.cumsum([0, *(w.rows_shape[0] for w in weights)])

    def read(start: int, stop: int) -> Array:
        parts = []
        for weight, low, high in zip(weights, bounds[:-1], bounds[1:], strict=True):
            a, b = max(start, int(low)), min(stop, int(high))
            if a < b:
                parts.append(weight.read_rows(a - int(low), b - int(low)))
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    return LazyWeight(
        read,
        (int(bounds[-1]), *first.rows_shape[1:]),
        first.dtype,
        name,
        transposed=first.transposed,
        given=Given.joined([weight.given for weight in weights]),
    )


def take_rows(weight: LazyWeight, kept: Array) -> LazyWeight:
    """Some rows of a weight.

    Args:
        weight: By rows [N, ...].
        kept: [M] indices of rows, ascending. Those that lie close together are read at once.
    """
    read = weight.read_rows
    breaks = np.flatnonzero(np.diff(kept) > _GAP) + 1

    def taken(start: int, stop: int) -> Array:
        inside = breaks[(breaks > start) & (breaks < stop)]
        parts = []
        for low, high in itertools.pairwise([start, *inside.tolist(), stop]):
            first, last = int(kept[low]), int(kept[high - 1])
            parts.append(read(first, last + 1)[kept[low:high] - first])
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    return LazyWeight(
        taken,
        (len(kept), *weight.rows_shape[1:]),
        weight.dtype,
        weight.name or "",
        transposed=weight.transposed,
        given=None if weight.given is None else Given(weight.given.label),
    )


def rows_of_columns(weight: LazyWeight) -> LazyWeight:
    """A weight that is stored by input channel, [K, N], as rows by output channel; the graph sees
    what it saw. A tile reads the whole weight, in pieces."""

    def read(start: int, stop: int) -> Array:
        pieces = [weight.read_rows(a, b)[:, start:stop] for a, b in weight.tiles()]
        return np.ascontiguousarray(np.concatenate(pieces).T)

    return LazyWeight(
        read, weight.rows_shape[::-1], weight.dtype, weight.name or "", transposed=True
    )


def transposed_blocks(weight: LazyWeight, size: int) -> LazyWeight:
    """Each ``size`` rows of a weight [N, K] as K rows of ``size`` columns, [N / size * K, size]."""
    blocks, width = weight.rows_shape[0] // size, weight.rows_shape[1]

    def read(start: int, stop: int) -> Array:
        parts = []
        for block in range(start // width, -(-stop // width)):
            rows = weight.read_rows(block * size, (block + 1) * size)
            first = block * width
            parts.append(rows.T[max(start - first, 0) : min(stop - first, width)])
        return np.ascontiguousarray(np.concatenate(parts))

    return LazyWeight(
        read,
        (blocks * width, size),
        weight.dtype,
        weight.name or "",
        transposed=weight.transposed,
        given=None if weight.given is None else Given(weight.given.label),
    )


def rows_from(weight: LazyWeight, first: int) -> LazyWeight:
    """The rows of a weight from ``first`` on."""
    read = weight.read_rows
    return LazyWeight(
        lambda start, stop: read(first + start, first + stop),
        (weight.rows_shape[0] - first, *weight.rows_shape[1:]),
        weight.dtype,
        weight.name or "",
        transposed=weight.transposed,
    )


def permute_rows(weight: LazyWeight, order: Array) -> LazyWeight:
    """Rows of a weight in any order; of a tile, those that lie close together are read at once.

    Args:
        weight: By rows [N, ...].
        order: [M] index of the row at each place; rows may be left out or come again.
    """

    def read(start: int, stop: int) -> Array:
        wanted, places = np.unique(order[start:stop], return_inverse=True)
        return take_rows(weight, wanted).read_rows(0, len(wanted))[places]

    return LazyWeight(
        read,
        (len(order), *weight.rows_shape[1:]),
        weight.dtype,
        weight.name or "",
        transposed=weight.transposed,
    )
