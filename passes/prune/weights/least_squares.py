"""The weights that stay, fitted anew by least squares."""

from __future__ import annotations

import numpy as np

from optc.passes.prune.weights.masks import Float32, Mask
from optc.passes.prune.weights.row_tiles import in_tiles

#: Steps of conjugate gradients, at most.
_STEPS = 60
#: Share of a row's first residual at which it is solved.
_SOLVED = np.float32(1e-5)


def fit_on_mask(target: Float32, hessian: Float32, start: Float32, mask: Mask) -> Float32:
    """Z [N, K], zero outside the mask, of least tr((Z - W) H (Z - W)ᵀ).

    Every row is a system of its own, solved by conjugate gradients that begin at ``start``; H is
    scaled so that its diagonal is its own preconditioner.

    Args:
        target: W.
        hessian: H, positive definite, with a diagonal of ones.
        start: A first Z; zero outside the mask.
        mask: [N, K] what may be other than zero.
    """
    fitted = start.copy()

    def work(tile: slice) -> None:
        _conjugate_gradients(target[tile], hessian, fitted[tile], mask[tile])

    in_tiles(work, len(target))
    return fitted


def _conjugate_gradients(target: Float32, hessian: Float32, z: Float32, mask: Mask) -> None:
    """Some rows; z changes in place."""
    residual: Float32 = np.where(mask, (target - z) @ hessian, np.float32(0))
    direction = residual.copy()
    size = _squares(residual)
    enough = size * _SOLVED**2
    for _ in range(_STEPS):
        going = size > enough
        if not going.any():
            return
        product: Float32 = np.where(mask, direction @ hessian, np.float32(0))
        step = _ratio(size, np.einsum("nk,nk->n", direction, product), going)
        z += step[:, None] * direction
        residual -= step[:, None] * product
        before, size = size, _squares(residual)
        direction *= _ratio(size, before, going)[:, None]
        direction += residual


def _squares(rows: Float32) -> Float32:
    found: Float32 = np.einsum("nk,nk->n", rows, rows)
    return found


def _ratio(above: Float32, below: Float32, where: Mask) -> Float32:
    """0 where a row is solved."""
    return np.divide(above, below, out=np.zeros_like(above), where=where & (below > 0))
