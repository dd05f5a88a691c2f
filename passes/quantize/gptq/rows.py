"""Rounds rows of a weight by GPTQ: pure functions of the rows and a factor."""

from __future__ import annotations

import numpy as np

from optc.ir.quantized_rows import QuantizedTile, joined_tiles
from optc.passes.quantize.gptq.factor import Factor
from optc.passes.quantize.gptq.grids import Rounder, grid_of
from optc.passes.quantize.rounding import Float32, Zeros
from optc.passes.quantize.scheme import Scheme

#: Columns whose errors are handed on to all columns behind them at once.
_BLOCK = 64
#: Rows that are rounded together. Always as many, if need be with rows of zeros: so the products of
#: matrices have one shape, and a row's result depends on nothing but the row.
TILE = 256


def gptq_rows(
    rows: Float32,
    factor: Factor,
    scheme: Scheme,
    name: str = "weight",
    zeros: Zeros | None = None,
) -> QuantizedTile:
    """Quantize rows [n, K] to the grid of `optc.passes.quantize.affine.quantize_rows`.

    Every row's result depends on that row and the factor alone, to the bit. Weights that become
    zero are rounded to it when their column is reached, and the rest makes up for that, too
    (Frantar and Alistarh, SparseGPT, 2023, arXiv:2301.00774, section 3.5).

    Args:
        rows: float32; K is a multiple of the group size.
        factor: Of the Hessian of the weight's inputs, for the scheme's group size.
        scheme: The grid.
        name: Of the weight, for messages.
        zeros: [n, K], true where the result has to be zero, whatever ``rows`` holds there.

    Raises:
        InputError: ``rows`` holds infinities or NaN.
    """
    tiles = []
    for at in range(0, len(rows), TILE):
        part = slice(at, at + TILE)
        mask = None if zeros is None else zeros[part]
        tiles.append(_tile(rows[part], mask, factor, scheme, name))
    return joined_tiles(tiles)


def _tile(
    rows: Float32, zeros: Zeros | None, factor: Factor, scheme: Scheme, name: str
) -> QuantizedTile:
    """At most `TILE` rows."""
    columns = np.zeros((rows.shape[1], TILE), np.float32)
    columns[:, : len(rows)] = rows.T
    kept = None if zeros is None else _kept_columns(zeros)
    grid = grid_of(columns if kept is None else columns * kept, scheme, name)
    size = scheme.group_size or rows.shape[1]
    rounded = round_columns(columns, factor, size, grid, kept)
    values, scales, zero_points, group_scales = grid.tile(rounded)
    n = len(rows)
    return QuantizedTile(
        values[:n],
        scales[:n],
        None if zero_points is None else zero_points[:n],
        None if group_scales is None else group_scales[:n],
    )


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
    errors = np.empty((_BLOCK, w.shape[1]), np.float32)
    for start in range(0, len(w), _BLOCK):
        stop = min(start + _BLOCK, len(w))
        for j in range(start, stop):
            if j % group_size == 0:
                group = slice(j, j + group_size)
                x = w[group] if mask is None else w[group] * mask[group]
                grid.open(int(factor.order[j]) // group_size, x, factor.weights[group])
            rounded[j], near = grid.round(w[j] if mask is None else w[j] * mask[j])
            error = np.subtract(w[j], near, out=errors[j - start])
            w[j + 1 : stop] -= factor.shares[j, j + 1 : stop, None] * error
        w[stop:] -= factor.shares[start:stop, stop:].T @ errors[: stop - start]
    in_order = np.empty_like(rounded)
    in_order[factor.order] = rounded
    return in_order


def _kept_columns(zeros: Zeros) -> Float32:
    """[K, `TILE`] 0 for what becomes zero and else 1."""
    kept = np.ones((zeros.shape[1], TILE), np.float32)
    kept[:, : len(zeros)] = ~zeros.T
    return kept
