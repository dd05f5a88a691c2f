"""Methods that only choose: the weights that stay are as they were."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.masks import Float32, Mask, mask_of

Float64 = npt.NDArray[np.float64]


def by_magnitude(rows: Float32, amount: Amount) -> Mask:
    """The largest weights of the whole [N, K] stay (of each m inputs, with a pattern)."""
    return mask_of(np.abs(rows), amount)


def by_wanda(rows: Float32, hessian: Float64, amount: Amount) -> Mask:
    """Of each row of [N, K] the weights stay whose part of the result is the largest.

    Their score is |w_ij|·‖x_j‖ (Sun et al., A Simple and Effective Pruning Approach for Large
    Language Models, 2024, arXiv:2306.11695).

    Args:
        rows: The weight.
        hessian: E[x xᵀ] of its inputs, [K, K].
        amount: How many are pruned.
    """
    sizes = np.sqrt(hessian.diagonal()).astype(np.float32)
    return mask_of(np.abs(rows) * sizes, amount, by_row=True)
