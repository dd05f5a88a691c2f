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
#: A matrix that rows or columns are mixed by; products are computed as precisely as it is given.
Matrix = Float32 | npt.NDArray[np.float64]
#: Rows that are computed together, and rows that are read for them at a time.
_TILE = 256


def scaled_columns(weight: LazyWeight, factors: Float32) -> LazyWeight:
    """W diag(f), of W [N, K] and f [K]."""
    return _lazy(weight, lambda start, stop: _rows(weight, start, stop) * factors)


def scaled_rows(weight: LazyWeight, factors: Float32) -> LazyWeight:
    """diag(f) W, of W [N, ...] and f [N]; on its grid where all f are powers of two."""

    def read(start: int, stop: int) -> Float32:
        rows = _rows(weight, start, stop)
        return rows * factors[start:stop].reshape(-1, *[1] * (rows.ndim - 1))

    scaled = _lazy(weight, read)
    scaled.given = None if weight.given is None else weight.given.scaled(factors)
    return scaled


def mixed_columns(weight: LazyWeight, matrix: Matrix) -> LazyWeight:
    """W (I ⊗ M), of W [N, K] and M [b, c], b a divisor of K: each b columns become c."""
    last, columns = weight.rows_shape
    wide = columns // len(matrix) * matrix.shape[1]

    def tile(start: int) -> Float32:
        rows = _rows(weight, start, min(start + _TILE, last))
        mixed = rows.reshape(-1, len(matrix)) @ matrix
        return mixed.reshape(-1, wide).astype(np.float32, copy=False)

    return _lazy(weight, _in_tiles(tile, last, _TILE), (last, wide))


def mixed_rows(weight: LazyWeight, matrix: Matrix) -> LazyWeight:
    """(I ⊗ M) W, of W [N, K] and M [c, b], b a divisor of N: each b rows become c.

    Memory holds two tiles of rows, for which all b rows are read.
    """
    given, size = matrix.shape
    last = weight.rows_shape[0] // size * given
    step, read = (
        next(n for n in range(min(_TILE, count), 0, -1) if count % n == 0)
        for count in (given, size)
    )

    def tile(start: int) -> Float32:
        first, inside = start // given * size, start % given
        wanted = matrix[inside : inside + step]
        total = np.zeros((step, *weight.rows_shape[1:]), matrix.dtype)
        for at in range(0, size, read):
            total += wanted[:, at : at + read] @ _rows(weight, first + at, first + at + read)
        return total.astype(np.float32, copy=False)

    return _lazy(weight, _in_tiles(tile, last, step), (last, *weight.rows_shape[1:]))


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
        weight,
        lambda start, stop: _rows(weight, first + start, first + stop),
        (last - first, *weight.rows_shape[1:]),
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
    weight: LazyWeight,
    read: Callable[[int, int], Float32],
    shape: tuple[int, ...] | None = None,
) -> LazyWeight:
    return LazyWeight(
        read,
        weight.rows_shape if shape is None else shape,
        ir.DataType.FLOAT,
        weight.name or "",
        transposed=weight.transposed,
    )
