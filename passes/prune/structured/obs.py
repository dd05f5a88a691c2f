"""The columns of a weight that can go, and the fit of the others, by least squares.

With H = E[x xᵀ] + d I, taking columns R out of W [N, K] costs at least tr(W_R (G_RR)⁻¹ W_Rᵀ), with
G = H⁻¹, where the other columns S are fitted anew: W_S + W_R H_RS (H_SS)⁻¹. The optimal brain
surgeon (Hassibi and Stork, 1992) for structures: Kurtic et al., ZipLM, 2023, arXiv:2302.04089.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.passes.numerics.gptq.factor import DAMPING, invert_root
from optc.passes.numerics.gptq.triangular import (
    cholesky_in_place,
    invert_lower_in_place,
    solve_in_place,
)

Float64 = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
#: Columns that are taken out at a time are so many that no more rounds than this are needed.
_ROUNDS = 1024


def damped(hessian: Float64, name: str) -> Float64:
    """H + d I with the damping that its inverse takes; inputs that were always zero count as 1.

    Args:
        hessian: [K, K], symmetric.
        name: Of the weight, for messages.

    Raises:
        InputError: It is so far from positive definite that no damping helps.
    """
    whole = hessian.copy()
    dead = np.flatnonzero(hessian.diagonal() == 0)
    whole[dead, dead] = 1.0
    mean = float(whole.diagonal().mean())
    damping = invert_root(whole.copy(), name)
    whole[np.diag_indices_from(whole)] += max(damping, DAMPING) * mean
    return whole


def least_important(weight: Float64, hessian: Float64, count: int) -> Indices:
    """The ``count`` columns that go, ascending.

    Args:
        weight: [N, K], float64.
        hessian: H + d I [K, K], positive definite.
        count: Fewer than K.
    """
    return np.sort(removal_order(weight, hessian, count))


def removal_order(weight: Float64, hessian: Float64, count: int) -> Indices:
    """The ``count`` columns that go, in order: one after the other (of more than 1024 columns, a
    thousandth of them) the one of least |w_j|² / G_jj, the others making up for it.

    Args:
        weight: [N, K], float64.
        hessian: H + d I [K, K], positive definite.
        count: Fewer than K.
    """
    w, g = weight.copy(), np.linalg.inv(hessian)
    left = np.ones(len(g), bool)
    at_once = _at_once(len(g))
    order: list[Indices] = [np.zeros(0, np.intp)]
    while (remaining := count - int((~left).sum())) > 0:
        scores = np.full(len(g), np.inf)
        scores[left] = np.square(w[:, left]).sum(axis=0) / g.diagonal()[left]
        gone = np.sort(np.argsort(scores, kind="stable")[: min(at_once, remaining)])
        share = np.linalg.solve(g[np.ix_(gone, gone)], g[gone])
        w -= w[:, gone] @ share
        g -= g[:, gone] @ share
        left[gone] = False
        order.append(gone)
    return np.concatenate(order)


def _at_once(columns: int) -> int:
    return -(-columns // _ROUNDS)


def refitted(weight: Float64, hessian: Float64, kept: Indices) -> Float64:
    """Columns ``kept`` [n] of W [N, K], which make up for those that go: [N, n], float64.

    Args:
        weight: [N, K].
        hessian: H + d I [K, K], positive definite.
        kept: Ascending.
    """
    gone = np.setdiff1d(np.arange(len(hessian)), kept)
    stays: Float64 = weight[:, kept].astype(np.float64)
    if not len(gone) or not len(kept):
        return stays
    root = hessian[np.ix_(kept, kept)].copy()
    cholesky_in_place(root)
    invert_lower_in_place(root)
    share = weight[:, gone] @ hessian[np.ix_(gone, kept)]
    solve_in_place(share, root)
    return stays + share
