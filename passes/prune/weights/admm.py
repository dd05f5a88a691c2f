"""ADMM: which weights stay is found together with what they become."""

from __future__ import annotations

import numpy as np

from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.least_squares import fit_on_mask
from optc.passes.prune.weights.masks import Float32, Mask, mask_of
from optc.passes.prune.weights.row_tiles import in_tiles
from optc.passes.prune.weights.scaled import Float64, Scaled, scaled

#: The first penalty, and its growth every so many steps by the share of the mask that has changed.
_PENALTY, _EVERY = 0.1, 3
_GROWTH = ((1e-3, 1.3), (1e-4, 1.2), (0.0, 1.1))
#: Steps, at most; the mask stands still long before.
_STEPS = 300


def by_admm(rows: Float32, hessian: Float64, amount: Amount, name: str = "weight") -> Float32:
    """The pruned weight of [N, K] of little tr(E H Eᵀ), E being what it is off.

    The alternating direction method of multipliers between a weight X that fits and a weight D that
    is sparse, drawn together ever more firmly; once D's zeros stay, what is left is fitted (Meng
    et al., ALPS, 2024, arXiv:2406.07831). The whole weight is compared, not a row or a block.

    Args:
        rows: The weight.
        hessian: E[x xᵀ] of its inputs, [K, K].
        amount: How many are pruned.
        name: For messages.

    Raises:
        InputError: The Hessian holds infinities, NaN or negative squares.
    """
    problem = scaled(rows, hessian, name)
    sparse, mask = _Search(problem, amount).run()
    return problem.unscaled(fit_on_mask(problem.rows, problem.hessian, sparse, mask))


class _Search:
    """X, D and their scaled dual variable V, in the scaled columns."""

    def __init__(self, problem: Scaled, amount: Amount) -> None:
        self._problem, self._amount = problem, amount
        self._values, vectors = np.linalg.eigh(problem.hessian.astype(np.float64))
        self._roots = vectors.astype(np.float32)
        self._wanted = np.empty_like(problem.rows)  # W H
        in_tiles(self._multiply, len(problem.rows))
        self._mask = mask_of(np.abs(problem.rows), amount)
        self._sparse, self._dual = problem.rows * self._mask, np.zeros_like(problem.rows)
        self._fit = np.empty_like(problem.rows)
        self._penalty, self._shrink = np.float32(_PENALTY), np.empty(0, np.float32)

    def run(self) -> tuple[Float32, Mask]:
        """D when its zeros stay, and which of its weights stay."""
        changed = 0
        for step in range(1, _STEPS + 1):
            changed += self._step()
            if step % _EVERY == 0:
                if not changed:
                    break
                share = changed / self._mask.size
                growth = next(factor for least, factor in _GROWTH if share >= least)
                self._penalty *= np.float32(growth)
                changed = 0
        return self._sparse, self._mask

    def _step(self) -> int:
        """Take one step, and count the weights of the mask that have changed."""
        self._shrink = (1 / (self._values + self._penalty)).astype(np.float32)
        in_tiles(self._minimize, len(self._fit))
        before, self._mask = self._mask, mask_of(np.abs(self._sparse), self._amount)
        in_tiles(self._draw, len(self._fit))
        return int(np.count_nonzero(self._mask != before))

    def _multiply(self, tile: slice) -> None:
        self._wanted[tile] = self._problem.rows[tile] @ self._problem.hessian

    def _minimize(self, tile: slice) -> None:
        """X, and what D is drawn from."""
        right = self._penalty * self._sparse[tile]
        right += self._wanted[tile]
        right -= self._dual[tile]
        self._fit[tile] = ((right @ self._roots) * self._shrink) @ self._roots.T
        self._sparse[tile] = self._fit[tile] + self._dual[tile] / self._penalty

    def _draw(self, tile: slice) -> None:
        """D and V."""
        self._sparse[tile] *= self._mask[tile]
        self._dual[tile] += self._penalty * (self._fit[tile] - self._sparse[tile])
