"""SparseGPT: one input after the other, the rest making up for each weight that is pruned."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.passes.numerics.gptq.factor import Factor, factor_of
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.masks import Float32, Mask, mask_of
from optc.passes.prune.weights.row_tiles import in_tiles

Float64 = npt.NDArray[np.float64]
#: Columns whose weights are compared when the first of them is reached.
_BLOCK = 128


def by_sparsegpt(rows: Float32, hessian: Float64, amount: Amount, name: str = "weight") -> Float32:
    """The pruned weight of [N, K] (Frantar and Alistarh, SparseGPT, 2023, arXiv:2301.00774).

    The mask of a block of 128 columns is chosen when the block is reached, over all rows, by what
    pruning a weight costs after all behind it have made up for it; that of a pattern when its m
    columns are. Each pruned weight's error is handed on as GPTQ hands on that of rounding.

    Args:
        rows: The weight.
        hessian: E[x xᵀ] of its inputs, [K, K].
        amount: How many are pruned.
        name: For messages.

    Raises:
        InputError: As `optc.passes.numerics.gptq.factor.factor_of`.
    """
    factor = factor_of(hessian, 0, name, sort=False)
    columns = np.ascontiguousarray(rows.T)  # a column is a row in memory
    for start in range(0, len(columns), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(columns)))
        whole = None if amount.of else _mask(columns, factor, block, amount)

        def work(tile: slice, block: slice = block, whole: Mask | None = whole) -> None:
            part = np.ascontiguousarray(columns[:, tile])
            mask = None if whole is None else whole[:, tile]
            _prune_block(part, mask, factor, block, amount)
            columns[:, tile] = part

        in_tiles(work, columns.shape[1])
    return np.ascontiguousarray(columns.T)


def _mask(columns: Float32, factor: Factor, some: slice, amount: Amount) -> Mask:
    """The mask [B, n] of the weights of ``some`` columns of [K, n] that stay."""
    scores = np.square(columns[some] / factor.pivots[some, None])
    return mask_of(scores.T, amount).T


def _prune_block(
    columns: Float32, mask: Mask | None, factor: Factor, block: slice, amount: Amount
) -> None:
    """Prune the columns of [K, n] in ``block``, and change those behind; without a mask, one is
    chosen every m columns, m being the pattern's."""
    size = block.stop - block.start
    kept = np.empty((size, columns.shape[1]), np.bool_) if mask is None else mask
    errors = np.empty((size, columns.shape[1]), np.float32)
    for at, j in enumerate(range(block.start, block.stop)):
        if mask is None and at % amount.of == 0:
            kept[at : at + amount.of] = _mask(columns, factor, slice(j, j + amount.of), amount)
        error = errors[at]
        error[:] = np.where(kept[at], np.float32(0), columns[j])
        columns[j] -= error
        columns[j + 1 : block.stop] -= factor.shares[j, j + 1 : block.stop, None] * error
    columns[block.stop :] -= factor.shares[block, block.stop :].T @ errors
