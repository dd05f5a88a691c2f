"""Top-k, top-p and min-p over rows of logits. Ties keep the lower token id.

Every function treats each row on its own and in the same order of operations whatever the other
rows are, so that a row's outcome does not depend on its batch mates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.executable import Float32
from optc.runtime.noise import Float64

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_LOW_WORD = np.uint64(0xFFFFFFFF)
#: Likeliest tokens that top-p looks at first; grows while they do not hold enough probability.
_FIRST_LOOK = 256


@dataclass(frozen=True)
class Filters:
    """Parameters of F rows; all arrays [F].

    Attributes:
        temperature: Above 0.
        top_k: At most this many tokens; 0 is all.
        top_p: In (0, 1].
        min_p: In [0, 1].
    """

    temperature: Float64
    top_k: Int64
    top_p: Float64
    min_p: Float64

    def rows(self, index: Int64) -> Filters:
        """The parameters of the rows ``index``."""
        return Filters(
            self.temperature[index], self.top_k[index], self.top_p[index], self.min_p[index]
        )


@dataclass(frozen=True)
class Candidates:
    """What the filters left of F rows.

    Attributes:
        ids: [F, M] token ids; None if column j is token j (M is the vocabulary).
        scores: [F, M] logits over temperature; -inf where filtered out.
    """

    ids: Int64 | None
    scores: Float64


def filter_whole(logits: Float32, filters: Filters) -> Candidates:
    """Temperature and min-p, which need no order; top-k and top-p are not looked at.

    Args:
        logits: [F, V].
        filters: Of the F rows.
    """
    scores = logits.astype(np.float64) / filters.temperature[:, None]
    if filters.min_p.any():
        with np.errstate(divide="ignore"):
            least = scores.max(axis=1) + np.log(filters.min_p)
        scores[scores < least[:, None]] = -np.inf
    return Candidates(None, scores)


def filter_sorted(logits: Float32, filters: Filters) -> Candidates:
    """All filters over the likeliest tokens, in order; only as many as the rows need.

    Args:
        logits: [F, V].
        filters: Of the F rows; each has a top-k or a top-p.
    """
    vocab = logits.shape[1]
    top_k = np.where(filters.top_k > 0, np.minimum(filters.top_k, vocab), vocab)
    totals = _totals(logits, filters, top_k)
    limited = np.where(top_k < vocab, top_k, 0)
    width = min(vocab, max(_FIRST_LOOK, int(limited.max())))
    while True:
        ids = likeliest(logits, width)
        scores = np.take_along_axis(logits, ids, axis=1) / filters.temperature[:, None]
        mass = np.exp(scores - scores[:, :1])
        below = np.cumsum(mass, axis=1)
        # Rows with a top-k count only their k likeliest tokens as the whole.
        last = np.minimum(top_k, width)[:, None] - 1
        whole = np.where(top_k < vocab, np.take_along_axis(below, last, axis=1)[:, 0], totals)
        enough = (top_k <= width) | (below[:, -1] >= filters.top_p * whole)
        if width == vocab or enough.all():
            break
        width = min(vocab, width * 8)
    keep = np.arange(width) < top_k[:, None]
    # A token stays while the likelier ones alone do not reach the sum.
    keep &= (below - mass) < (filters.top_p * whole)[:, None]
    keep &= mass >= filters.min_p[:, None]
    keep[:, 0] = True
    return Candidates(ids, np.where(keep, scores, -np.inf))


def _totals(logits: Float32, filters: Filters, top_k: Int64) -> Float64:
    """[F] sum of exp(score - largest score) over the vocabulary, for rows without top-k."""
    totals = np.zeros(len(logits))
    rows = np.flatnonzero(top_k == logits.shape[1])
    scores = logits[rows].astype(np.float64) / filters.temperature[rows, None]
    totals[rows] = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf)).sum(axis=1)
    return totals


def likeliest(logits: Float32, count: int) -> Int64:
    """[F, count] ids of the largest logits, largest first, lower ids first on ties.

    Args:
        logits: [F, V] without NaN.
        count: At most V.
    """
    vocab = logits.shape[1]
    # One integer orders by logit, then by lower id: floats as integers that sort alike, and the
    # complement of the id below. Adding 0 turns -0.0 to 0.0, which is its equal.
    bits = (logits + np.float32(0)).view(np.uint32)
    ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))
    keys = ordered.astype(np.uint64) << np.uint64(32)
    keys |= _LOW_WORD - np.arange(vocab, dtype=np.uint64)
    if count < vocab:
        keys = np.partition(keys, vocab - count, axis=1)[:, vocab - count :]
    keys.sort(axis=1)
    return (_LOW_WORD - (keys[:, ::-1] & _LOW_WORD)).astype(np.int64)
