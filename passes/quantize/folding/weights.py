"""Weights whose rows and columns are scaled or mixed as they are read.

The bits of a row never depend on which rows are read with it: products of matrices are computed for
fixed tiles of rows, whichever of them are wanted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.weights import LazyWeight, concatenate_rows

Float32 = npt.NDArray[np.float32]
#: Rows that are computed together, and rows that are read for them at a time.
_TILE = 256


def scaled_columns(weight: LazyWeight, factors: Float32) -> LazyWeight:
    """W diag(f), of W [N, K] and f [K]."""
    return _lazy(weight, lambda start, stop: _rows(weight, start, stop) * factors)


def scaled_rows(weight: LazyWeight, factors: Float32) -> LazyWeight:
    """diag(f) W, of W [N, ...] and f [N]."""

    def read(start: int, stop: int) -> Float32:
        rows = _rows(weight, start, stop)
        return rows * factors[start:stop].reshape(-1, *[1] * (rows.ndim - 1))

    return _lazy(weight, read)


def mixed_columns(weight: LazyWeight, matrix: Float32) -> LazyWeight:
    """W (I ⊗ M), of W [N, K] and M [b, b], b a divisor of K: each b columns are mixed by M."""
    last, columns = weight.rows_shape

    def tile(start: int) -> Float32:
        rows = _rows(weight, start, min(start + _TILE, last))
        return (rows.reshape(-1, len(matrix)) @ matrix).reshape(-1, columns)

    return _lazy(weight, _in_tiles(tile, last, _TILE))


def mixed_rows(weight: LazyWeight, matrix: Float32) -> LazyWeight:
    """(I ⊗ M) W, of W [N, K] and M [b, b], b a divisor of N: each b rows are mixed by M.

    Memory holds two tiles of rows, for which all b rows are read.
    """
    last, size = weight.rows_shape[0], len(matrix)
    step = next(n for n in range(min(_TILE, size), 0, -1) if size % n == 0)

    def tile(start: int) -> Float32:
        first = start // size * size
        wanted = matrix[start - first : start - first + step]
        total = np.zeros((step, *weight.rows_shape[1:]), np.float32)
        for at in range(0, size, step):
            total += wanted[:, at : at + step] @ _rows(weight, first + at, first + at + step)
        return total

    return _lazy(weight, _in_tiles(tile, last, step))


def on_rows(
    weight: LazyWeight, start: int, stop: int, rewrite: Callable[[LazyWeight], LazyWeight]
) -> LazyWeight:
    """The weight with rows ``start:stop`` as ``rewrite`` makes them of these rows."""
    last = weight.rows_shape[0]
    pieces = [(0, start), (start, stop), (stop, last)]
    parts = [_part(weight, *piece) for piece in pieces]
    parts[1] = rewrite(parts[1])
    wanted = [part for part in parts if part.rows_shape[0]]
    return concatenate_rows(wanted, weight.name or "") if len(wanted) > 1 else wanted[0]


def _part(weight: LazyWeight, first: int, last: int) -> LazyWeight:
    return _lazy(
        weight, lambda start, stop: _rows(weight, first + start, first + stop), last - first
    )


def _rows(weight: LazyWeight, start: int, stop: int) -> Float32:
    return np.asarray(weight.read_rows(start, stop), np.float32)


def _in_tiles(
    tile: Callable[[int], Float32], last: int, step: int
) -> Callable[[int, int], Float32]:
    """Reads rows of tiles of ``step`` rows; ``tile`` computes the one that starts at a row."""

    def read(start: int, stop: int) -> Float32:
        first = start // step * step
        parts = [tile(at) for at in range(first, min(stop, last), step)]
        return np.concatenate(parts)[start - first : stop - first]

    return read


def _lazy(
    weight: LazyWeight, read: Callable[[int, int], Float32], count: int | None = None
) -> LazyWeight:
    return LazyWeight(
        read,
        (weight.rows_shape[0] if count is None else count, *weight.rows_shape[1:]),
        ir.DataType.FLOAT,
        weight.name or "",
        transposed=weight.transposed,
    )
