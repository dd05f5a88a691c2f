"""Masks: which weights stay, by the size of their scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.passes.prune.weights.amounts import Amount

Float32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def mask_of(scores: Float32, amount: Amount, *, by_row: bool = False) -> Mask:
    """The weights of ``scores`` [N, K] >= 0 that stay: those of the largest scores, the first of
    equals.

    Args:
        scores: What it would cost to prune each weight.
        amount: How many are pruned; a pattern needs K to be a multiple of its m.
        by_row: Compare weights of one row; else of all rows. Patterns compare m inputs of a row.
    """
    if amount.of:
        groups, kept = scores.reshape(-1, amount.of), amount.kept
    else:
        groups = scores if by_row else scores.reshape(1, -1)
        kept = groups.shape[1] - round(amount.share * groups.shape[1])
    return keep_largest(groups, kept).reshape(scores.shape)


def keep_largest(groups: Float32, kept: int) -> Mask:
    """The ``kept`` largest of each row of ``groups`` [G, L]; exactly as many."""
    length = groups.shape[1]
    if kept == length:
        return np.ones(groups.shape, np.bool_)
    if not kept:
        return np.zeros(groups.shape, np.bool_)
    least = np.partition(groups, length - kept, axis=1)[:, length - kept, None]
    mask: Mask = groups >= least
    ties = np.flatnonzero(mask.sum(axis=1) > kept)
    if len(ties):
        order = np.argsort(-groups[ties], axis=1, kind="stable")
        mask[ties] = False
        mask[ties[:, None], order[:, :kept]] = True
    return mask
