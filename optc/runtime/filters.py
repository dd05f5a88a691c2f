"""Top-k, top-p and min-p over one row of logits. Ties keep the lower token id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.runtime.executable import Float32
from optc.runtime.params import SamplingParams

Int64 = npt.NDArray[np.int64]

#: Likeliest tokens that top-p looks at first; grows while they do not hold enough probability.
_FIRST_LOOK = 256
_GROWTH = 8
#: Tokens of which only the largest is looked at to find a threshold.
_STRIDE = 16


def kept_tokens(logits: Float32, params: SamplingParams) -> Int64 | None:
    """Ids [M] of the tokens that the filters leave, likeliest first; None if all are left.

    Args:
        logits: [V] without NaN.
        params: With a temperature above 0; its penalties are not looked at.
    """
    vocab = len(logits)
    if 0 < params.top_k < vocab:
        ids = likeliest(logits, params.top_k)
        mass = _mass(logits[ids], params.temperature)
        return ids[: _count(mass, float(mass.sum()), params)]
    if params.top_p < 1:
        return _nucleus(logits, params)
    if params.min_p > 0:
        mass = _mass(logits, params.temperature)
        few = np.flatnonzero(mass >= params.min_p)
        return few[np.argsort(-logits[few], kind="stable")]
    return None


def _nucleus(logits: Float32, params: SamplingParams) -> Int64:
    """Top-p without top-k: looks at more and more of the likeliest tokens until they suffice."""
    whole = float(_mass(logits, params.temperature).sum())
    width = min(_FIRST_LOOK, len(logits))
    while True:
        ids = likeliest(logits, width)
        mass = _mass(logits[ids], params.temperature)
        if width == len(logits) or mass.sum() >= params.top_p * whole:
            return ids[: _count(mass, whole, params)]
        width = min(width * _GROWTH, len(logits))


def _mass(logits: Float32, temperature: float) -> npt.NDArray[np.float64]:
    """Probabilities relative to that of the likeliest token, which is among ``logits``."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    scores /= temperature
    return np.exp(scores)


def _count(mass: npt.NDArray[np.float64], whole: float, params: SamplingParams) -> int:
    """How many of the likeliest tokens top-p and min-p leave, at least one.

    Args:
        mass: Relative probabilities, largest first.
        whole: Sum that top-p refers to.
        params: The filters.
    """
    # A token stays while the likelier ones alone do not reach the sum.
    before = np.cumsum(mass) - mass
    reach = np.count_nonzero(before < params.top_p * whole)
    return max(1, min(int(reach), int(np.count_nonzero(mass >= params.min_p))))


def likeliest(logits: Float32, count: int) -> Int64:
    """[count] ids of the largest logits, largest first, lower ids first on ties.

    Args:
        logits: [V] without NaN.
        count: At most V.
    """
    # The largest of every few tokens: the count-th largest of those is a threshold that at least
    # count tokens reach, and rarely many more, found without ordering the whole row.
    columns = len(logits) // _STRIDE
    ids = np.arange(len(logits))
    if count < columns:
        peaks = logits[: columns * _STRIDE].reshape(_STRIDE, columns).max(axis=0)
        ids = np.flatnonzero(logits >= np.partition(peaks, columns - count)[columns - count])
    return ids[np.argsort(-logits[ids], kind="stable")[:count]]
