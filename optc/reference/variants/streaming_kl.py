"""KL(p ‖ q) of many rows of logits that arrive in tiles of the vocabulary.

With logits z and y and log-sum-exps Lz and Ly it is sum(softmax(z) * (z - y)) - Lz + Ly: sums over
the vocabulary, kept relative to the largest logit so far (Milakov and Gimelshein, 2018,
arXiv:1805.02867).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from optc.executable.executable import Float32

Float64 = npt.NDArray[np.float64]


class StreamingKL:
    """Sums of R rows of p and of several q, in float64.

    Args:
        rows: R.
        others: How many q there are.
    """

    def __init__(self, rows: int, others: int) -> None:
        # of p, then of each q: the largest logit so far, and the sum relative to it
        self._tops = np.full((1 + others, rows), -np.inf)
        self._totals = np.zeros((1 + others, rows))
        self._weighted = np.zeros((others, rows))

    def add(self, rows: slice, z: Float32, others: Iterable[Float32]) -> None:
        """Take a tile of logits [r, n] of some rows: of p, and of each q in order."""
        p = z.astype(np.float64)
        weights, rescale = self._exponentials(0, rows, p)
        for index, y in enumerate(others):
            q = y.astype(np.float64)
            self._exponentials(1 + index, rows, q)
            np.subtract(p, q, out=q)
            q *= weights
            self._weighted[index, rows] *= rescale
            self._weighted[index, rows] += q.sum(axis=1)

    def _exponentials(self, side: int, rows: slice, tile: Float64) -> tuple[Float64, Float64]:
        """exp(tile - largest so far), added to the sum, and what earlier sums count relative to
        it."""
        top = np.maximum(self._tops[side, rows], tile.max(axis=1))
        rescale = np.exp(self._tops[side, rows] - top)
        exponentials = np.exp(tile - top[:, None])
        self._totals[side, rows] *= rescale
        self._totals[side, rows] += exponentials.sum(axis=1)
        self._tops[side, rows] = top
        return exponentials, rescale

    def means(self) -> Float64:
        """The mean over all rows for each q, in nats; what rounding leaves below 0 is 0."""
        logs = self._tops + np.log(self._totals)
        kl: Float64 = self._weighted / self._totals[0] - logs[0] + logs[1:]
        return np.maximum(kl, 0.0).mean(axis=1)
