"""Rounds rows of a weight by GPTQ: pure functions of the rows and a factor."""

from __future__ import annotations

import numpy as np

from optc.ir.quantized_rows import QuantizedTile, joined_tiles
from optc.passes.quantize.gptq.factor import Factor
from optc.passes.quantize.gptq.grids import Rounder, grid_of
from optc.passes.quantize.rounding import Float32
from optc.passes.quantize.scheme import Scheme

#: Columns whose errors are handed on to all columns behind them at once.
_BLOCK = 64
#: Rows that are rounded together. Always as many, if need be with rows of zeros: so the products of
#: matrices have one shape, and a row's result depends on nothing but the row.
TILE = 256


def gptq_rows(rows: Float32, factor: Factor, scheme: Scheme, name: str = "weight") -> QuantizedTile:
    """Quantize rows [n, K] to the grid of `optc.passes.quantize.affine.quantize_rows`.

    Every row's result depends on that row and the factor alone, to the bit.

    Args:
        rows: float32; K is a multiple of the group size.
        factor: Of the Hessian of the weight's inputs, for the scheme's group size.
        scheme: The grid.
        name: Of the weight, for messages.

    Raises:
        InputError: ``rows`` holds infinities or NaN.
    """
    starts = range(0, len(rows), TILE)
    tiles = [_tile(rows[at : at + TILE], factor, scheme, name) for at in starts]
    return joined_tiles(tiles)


def _tile(rows: Float32, factor: Factor, scheme: Scheme, name: str) -> QuantizedTile:
    """At most `TILE` rows."""
    columns = np.zeros((rows.shape[1], TILE), np.float32)
    columns[:, : len(rows)] = rows.T
    grid = grid_of(columns, scheme, name)
    rounded = round_columns(columns, factor, scheme.group_size or rows.shape[1], grid)
    values, scales, zeros, group_scales = grid.tile(rounded)
    n = len(rows)
    return QuantizedTile(
        values[:n],
        scales[:n],
        None if zeros is None else zeros[:n],
        None if group_scales is None else group_scales[:n],
    )


def round_columns(columns: Float32, factor: Factor, group_size: int, grid: Rounder) -> Float32:
    """The values [K, m] that ``grid`` has for the columns [K, m] of m rows, one column after the
    other. A column of the weight is a row in memory here: strided columns would take far longer
    than the arithmetic.

    Args:
        columns: float32; K is a multiple of the group size.
        factor: Of the Hessian of the weight's inputs, for this group size.
        group_size: Columns of a group, which ``grid`` opens when its first one is reached.
        grid: Rounds.
    """
    w = columns[factor.order]
    rounded = np.empty_like(w)
    errors = np.empty((_BLOCK, w.shape[1]), np.float32)
    for start in range(0, len(w), _BLOCK):
        stop = min(start + _BLOCK, len(w))
        for j in range(start, stop):
            if j % group_size == 0:
                group = slice(j, j + group_size)
                grid.open(int(factor.order[j]) // group_size, w[group], factor.weights[group])
            rounded[j], near = grid.round(w[j])
            error = np.subtract(w[j], near, out=errors[j - start])
            w[j + 1 : stop] -= factor.shares[j, j + 1 : stop, None] * error
        w[stop:] -= factor.shares[start:stop, stop:].T @ errors[: stop - start]
    in_order = np.empty_like(rounded)
    in_order[factor.order] = rounded
    return in_order
