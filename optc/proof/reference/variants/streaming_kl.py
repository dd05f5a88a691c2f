"""KL(p ‖ q) of many rows of logits that arrive in tiles of the vocabulary.

With logits z and y and log-sum-exps Lz and Ly it is sum(softmax(z) * (z - y)) - Lz + Ly: sums over
the vocabulary, kept relative to the largest logit so far (Milakov and Gimelshein, 2018,
arXiv:1805.02867).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Float32

Float64 = npt.NDArray[np.float64]


#: Logits that are taken at a time: their float64 values stay in a core's cache.
_CHUNK_ELEMENTS = 1 << 15


class StreamingKL:
    """Sums of R rows of p and of several q, in float64.

    Args:
        rows: R.
        others: How many q there are.
        pool: Threads that take rows side by side; None is the caller's.
    """

    def __init__(self, rows: int, others: int, pool: ThreadPoolExecutor | None = None) -> None:
        # of p, then of each q: the largest logit so far, and the sum relative to it
        self._tops = np.full((1 + others, rows), -np.inf)
        self._totals = np.zeros((1 + others, rows))
        self._weighted = np.zeros((others, rows))
        self._pool = pool

    def add(self, rows: slice, z: Float32, others: Iterable[Float32]) -> None:
        """Take a tile of logits [r, n] of some rows: of p, and of each q in order."""
        weights = np.empty(z.shape)
        rescale = np.empty(len(z))
        pieces = self._pieces(*z.shape)

        def original(piece: slice) -> None:
            weights[piece] = z[piece]
            rescale[piece] = self._exponentials(0, _within(rows, piece), weights[piece])

        self._each(original, pieces)
        for index, y in enumerate(others):

            def other(piece: slice, index: int = index, y: Float32 = y) -> None:
                place = _within(rows, piece)
                q = y[piece].astype(np.float64)
                gaps = np.subtract(z[piece], q)
                gaps *= weights[piece]
                self._exponentials(1 + index, place, q)
                self._weighted[index, place] *= rescale[piece]
                self._weighted[index, place] += gaps.sum(axis=1)

            self._each(other, pieces)

    def _each(self, take: Callable[[slice], None], pieces: Sequence[slice]) -> None:
        """Take all pieces, on the threads that there are."""
        for _ in map(take, pieces) if self._pool is None else self._pool.map(take, pieces):
            pass

    def _pieces(self, rows: int, width: int) -> list[slice]:
        """Few rows each, all of them together."""
        together = max(1, _CHUNK_ELEMENTS // width)
        return [slice(at, min(at + together, rows)) for at in range(0, rows, together)]

    def _exponentials(self, side: int, rows: slice, tile: Float64) -> Float64:
        """Make ``tile`` exp(tile - largest so far), add it to the sum, and say what earlier sums
        count relative to it."""
        top = np.maximum(self._tops[side, rows], tile.max(axis=1))
        rescale: Float64 = np.exp(self._tops[side, rows] - top)
        tile -= top[:, None]
        np.exp(tile, out=tile)
        self._totals[side, rows] *= rescale
        self._totals[side, rows] += tile.sum(axis=1)
        self._tops[side, rows] = top
        return rescale

    def means(self) -> Float64:
        """The mean over all rows for each q, in nats; what rounding leaves below 0 is 0."""
        logs = self._tops + np.log(self._totals)
        kl: Float64 = self._weighted / self._totals[0] - logs[0] + logs[1:]
        return np.maximum(kl, 0.0).mean(axis=1)


def _within(rows: slice, piece: slice) -> slice:
    """A piece of some rows, counted from the first of all rows."""
    return slice(rows.start + piece.start, rows.start + piece.stop)
