"""Rounds rows of a weight by GPTQ: pure functions of the rows and a factor."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from optc.ir.quantized_rows import QuantizedTile, joined_tiles
from optc.passes.numerics.gptq.factor import Factor
from optc.passes.numerics.gptq.grids import Rounder, grid_of
from optc.passes.numerics.rounding import Float32, Zeros, transpose_into
from optc.passes.numerics.scheme import Scheme

#: Columns whose errors are handed on at once, by blocks in blocks: to the columns behind them in
#: the next larger block, and from the largest to all others. Each time those are read and written:
#: what is far away should seldom be.
_BLOCKS = (8, 64, 512)
#: Rows that are rounded together. Always as many, if need be with rows of zeros: so the products of
#: matrices have one shape, and a row's result depends on nothing but the row.
TILE = 256
#: Of a weight that is rounded as a whole there may be more, and this many values. NumPy gives other
#: threads way only in operations on more than 500 values; below some 2,000, two threads that take
#: turns after each are slower than one.
_LARGEST_TILE, _TILE_VALUES = 4096, 1 << 23


def tile_rows(rows: int, columns: int) -> int:
    """Rows of a tile of a weight [rows, columns] that is rounded as a whole, by two threads."""
    size = TILE
    while 4 * size <= rows and 2 * size <= min(_LARGEST_TILE, _TILE_VALUES // columns):
        size *= 2
    return size


def gptq_rows(
    rows: Float32,
    factor: Factor,
    scheme: Scheme,
    name: str = "weight",
    zeros: Zeros | None = None,
    tile: int = TILE,
) -> QuantizedTile:
    """Quantize rows [n, K] to the grid of `optc.passes.numerics.affine.quantize_rows`.

    Every row's result depends on that row, the factor and ``tile`` alone, to the bit. Weights that
    become zero are rounded to it when their column is reached, and the rest makes up for that, too
    (Frantar and Alistarh, SparseGPT, 2023, arXiv:2301.00774, section 3.5).

    Args:
        rows: float32; K is a multiple of the group size.
        factor: Of the Hessian of the weight's inputs, for the scheme's group size.
        scheme: The grid.
        name: Of the weight, for messages.
        zeros: [n, K], true where the result has to be zero, whatever ``rows`` holds there.
        tile: Rows that are rounded together.

    Raises:
        InputError: ``rows`` holds infinities or NaN.
    """
    tiles = []
    for at in range(0, len(rows), tile):
        part = slice(at, at + tile)
        mask = None if zeros is None else zeros[part]
        columns = _columns(rows[part], tile)
        kept = None if mask is None else _columns(~mask, tile, 1.0)
        tiles.append(_tile(columns, kept, len(rows[part]), factor, scheme, name))
    return joined_tiles(tiles)


def _columns(rows: Float32 | Zeros, tile: int, padding: float = 0.0) -> Float32:
    """Rows [n, K] as columns [K, tile]."""
    columns = np.full((rows.shape[1], tile), padding, np.float32)
    transpose_into(columns[:, : len(rows)], rows)
    return columns


def _tile(
    columns: Float32, kept: Float32 | None, n: int, factor: Factor, scheme: Scheme, name: str
) -> QuantizedTile:
    """The first ``n`` of the rows that are the columns of [K, tile]; ``kept`` as of
    `round_columns`."""
    grid = grid_of(columns if kept is None else columns * kept, scheme, name)
    size = scheme.group_size or len(columns)
    rounded = round_columns(columns, factor, size, grid, kept)
    values, scales, zero_points, group_scales = grid.tile(rounded)
    return QuantizedTile(
        values[:n],
        scales[:n],
        None if zero_points is None else zero_points[:n],
        None if group_scales is None else group_scales[:n],
    )


def _blocks(group_size: int) -> tuple[int, ...]:
    """Sizes of blocks: where a group begins, all of its columns know of all errors so far."""
    largest = _BLOCKS[-1]
    fits = largest % group_size == 0 or group_size % largest == 0
    return _BLOCKS if fits else _BLOCKS[:-1]


def _end(column: int, size: int) -> int:
    """Of the block of so many columns that ``column`` is in."""
    return (column // size + 1) * size


def _hand_on(w: Float32, shares: Float32, errors: Float32, done: slice, end: int) -> None:
    """Take the errors of columns ``done`` from those between them and ``end``."""
    behind, first = slice(done.stop, end), done.start % len(errors)
    w[behind] -= shares[done, behind].T @ errors[first : first + done.stop - done.start]


def round_columns(
    columns: Float32,
    factor: Factor,
    group_size: int,
    grid: Rounder,
    kept: Float32 | None = None,
) -> Float32:
    """The values [K, m] that ``grid`` has for the columns [K, m] of m rows, one column after the
    other. A column of the weight is a row in memory here: strided columns would take far longer
    than the arithmetic.

    Args:
        columns: float32; K is a multiple of the group size.
        factor: Of the Hessian of the weight's inputs, for this group size.
        group_size: Columns of a group, which ``grid`` opens when its first one is reached.
        grid: Rounds.
        kept: [K, m], 0 for what has to become zero and else 1; None keeps all.
    """
    w, mask = columns[factor.order], None if kept is None else kept[factor.order]
    rounded = np.empty_like(w)
    blocks = (*_blocks(group_size), len(w))
    errors = np.empty((min(blocks[-2], len(w)), w.shape[1]), np.float32)
    for j in range(len(w)):
        if j % group_size == 0:
            group = slice(j, j + group_size)
            x = w[group] if mask is None else w[group] * mask[group]
            grid.open(int(factor.order[j]) // group_size, x, factor.weights[group])
        rounded[j], near = grid.round(w[j] if mask is None else w[j] * mask[j])
        error = np.subtract(w[j], near, out=errors[j % blocks[-2]])
        last = min(_end(j, blocks[0]), len(w))
        w[j + 1 : last] -= factor.shares[j, j + 1 : last, None] * error
        for size, larger in pairwise(blocks):
            if (j + 1) % size == 0:
                _hand_on(w, factor.shares, errors, slice(j + 1 - size, j + 1), _end(j, larger))
    in_order = np.empty_like(rounded)
    in_order[factor.order] = rounded
    return in_order
