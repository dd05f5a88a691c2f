"""The parts of a Hessian that GPTQ needs: an order of the columns, and shares of their errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.passes.numerics.gptq.triangular import (
    cholesky_in_place,
    invert_lower_in_place,
    mirror_upper,
)
from optc.passes.numerics.rounding import Float32

Float64 = npt.NDArray[np.float64]
#: Share of the mean diagonal that is added to the diagonal, so that H can be inverted.
DAMPING = 0.01
#: Times that ten times as much is tried where that does not suffice.
_RETRIES = 6


@dataclass(frozen=True)
class Factor:
    """Of a Hessian [K, K], columns in the order in which they are rounded.

    Attributes:
        order: [K] which column comes when; the columns of a group stay together.
        shares: [K, K] float32, unit upper triangular: after column i was rounded with the error e,
            column j > i becomes w_j - e * shares[i, j].
        weights: [K] float32, square roots of the diagonal: what an error in a column counts when
            the range of a group is searched.
        pivots: [K] float32, the diagonal of U: an error e in column i, the columns behind it making
            up for what they can, costs (e / pivots[i])².
        damping: Share of the mean diagonal that was added to it.
    """

    order: npt.NDArray[np.intp]
    shares: Float32
    weights: Float32
    pivots: Float32
    damping: float


#: Gives a factor when it is needed: all of a model's would be as large as its weights.
FactorOf = Callable[[], Factor]


def factor_of(
    hessian: Float64,
    group_size: int,
    name: str = "weight",
    *,
    sort: bool = True,
    consume: bool = False,
) -> Factor:
    """The factor of a Hessian H = E[x xᵀ].

    With H + dI = (Uᵀ U)⁻¹, U upper triangular, the shares are U_ij / U_ii (Frantar et al., 2023,
    section 3.3). Inputs that were always zero count as though they were 1 and independent.

    Args:
        hessian: [K, K], symmetric.
        group_size: Columns that share a scale; 0 is all of them.
        name: Of the weight, for messages.
        sort: Order the columns (`column_order`); False leaves them as they are.
        consume: Compute in the memory of ``hessian``, which holds nothing of use afterwards.

    Raises:
        InputError: It holds infinities or NaN, or is so far from positive definite that no damping
            helps.
    """
    diagonal = hessian.diagonal()
    if not np.isfinite(hessian).all() or (diagonal < 0).any():
        raise InputError(
            "the statistics of its inputs hold infinities, NaN or negative squares",
            where=name,
            hint="calibrate with another text",
        )
    order = column_order(diagonal, group_size) if sort else np.arange(len(diagonal))
    reverse = order[::-1]
    dead = diagonal[reverse] == 0
    ordered = reordered(hessian, reverse) if consume else hessian[np.ix_(reverse, reverse)]
    ordered[dead, dead] = 1.0
    weights = np.sqrt(ordered.diagonal()[::-1]).astype(np.float32)
    damping = invert_root(ordered, name)
    pivots = ordered.diagonal()[::-1].astype(np.float32)
    shares = np.empty(ordered.shape, np.float32)
    for row, upper in enumerate(ordered[::-1]):  # a row at a time: the whole in float64 is large
        shares[row] = upper[::-1] / upper[len(ordered) - 1 - row]
    return Factor(order, shares, weights, pivots, damping)


def reordered(matrix: Float64, order: npt.NDArray[np.intp]) -> Float64:
    """``matrix`` [K, K] with rows and columns in another order, in its own memory."""
    come_from = order.tolist()
    placed = np.zeros(len(matrix), bool)
    for first in range(len(matrix)):
        row, held = first, None
        while not placed[row]:  # along a cycle: each row is written once its own was moved
            held = matrix[first].copy() if held is None else held
            placed[row], source = True, come_from[row]
            matrix[row] = (held if source == first else matrix[source])[order]
            row = source
    return matrix


def column_order(diagonal: Float64, group_size: int) -> npt.NDArray[np.intp]:
    """Groups by their mean, and the columns of a group by their own size, the largest first: what
    counts most is rounded while most others can make up for it.

    Groups stay whole, so that nothing of the order is left in the result.
    """
    size = group_size or len(diagonal)
    groups = diagonal.reshape(-1, size)
    inside = np.argsort(-groups, axis=1, kind="stable") + size * np.arange(len(groups))[:, None]
    order: npt.NDArray[np.intp] = inside[np.argsort(-groups.mean(axis=1), kind="stable")].ravel()
    return order


def invert_root(hessian: Float64, name: str) -> float:
    """L⁻¹ takes the place of H; L Lᵀ = H + dI, L lower triangular. Returns the damping it took.

    With H in reverse order, rows and columns of L⁻¹ in reverse are U of (H + dI)⁻¹ = Uᵀ U, and H
    need not be inverted.

    Args:
        hessian: [K, K], symmetric.
        name: Of the weight, for messages.

    Raises:
        InputError: It is so far from positive definite that no damping helps.
    """
    diagonal = hessian.diagonal().copy()
    damping, mean = DAMPING, float(diagonal.mean()) or 1.0
    for _ in range(_RETRIES + 1):
        np.fill_diagonal(hessian, diagonal + damping * mean)
        try:
            cholesky_in_place(hessian)
        except np.linalg.LinAlgError:
            damping *= 10
            mirror_upper(hessian)
            continue
        invert_lower_in_place(hessian)
        return damping
    raise InputError(
        "the statistics of its inputs are no squares", where=name, hint="calibrate again"
    )
