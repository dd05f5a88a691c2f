"""Top-k, top-p, min-p and typical-p over one row. Ties keep the lower token id.

Top-k, top-p and min-p keep the first tokens in the order of their distance
(`optc.runtime.sampling.sampler_math`), typical-p those whose distance is nearest to the mean one,
which is to say whose surprise is nearest to the entropy (Meister et al., 2023). All sums are exact.
"""

from __future__ import annotations

import numpy as np

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler_math import WHOLE_MASS, Float64, Int64, masses

#: Tokens of which only the first is looked at to find a threshold.
_STRIDE = 16


def kept_tokens(distance: Float64, params: SamplingParams) -> Int64 | None:
    """Ids [M] of the tokens that the filters leave, ascending; None if all are left.

    Args:
        distance: [V] distances at the request's temperature, which is above 0.
        params: Its penalties are not looked at.
    """
    if not params.filters:
        return None
    vocab = len(distance)
    top_k = 0 < params.top_k < vocab
    ids = np.sort(nearest(distance, params.top_k)) if top_k else np.arange(vocab)
    mass = masses(distance[ids])
    for keep in (_nucleus, _likely, _typical):
        chosen = keep(distance[ids], mass, params)
        if chosen is not None:
            ids, mass = ids[chosen], mass[chosen]
    return ids


def _nucleus(distance: Float64, mass: Int64, params: SamplingParams) -> Int64 | None:
    if params.top_p == 1:
        return None
    # Tokens of so little mass that all of them together may be left out, so that few are ordered.
    whole = int(mass.sum())
    near = np.flatnonzero(mass > (whole - share_of(whole, params.top_p)) // len(mass))
    return near[first_by(distance[near], mass[near], share_of(whole, params.top_p))]


def _likely(distance: Float64, mass: Int64, params: SamplingParams) -> Int64 | None:
    return np.flatnonzero(mass >= params.min_p * WHOLE_MASS) if params.min_p > 0 else None


def _typical(distance: Float64, mass: Int64, params: SamplingParams) -> Int64 | None:
    if params.typical_p == 1:
        return None
    whole = int(mass.sum())
    mean = float(np.rint(mass * distance).astype(np.int64).sum()) / float(whole)
    return first_by(np.abs(distance - mean), mass, share_of(whole, params.typical_p))


def share_of(whole: int, share: float) -> int:
    """The mass that a share of ``whole`` stands for; at least one unit, so that a token stays."""
    return max(1, int(share * float(whole)))


def first_by(rank: Float64, mass: Int64, limit: int) -> Int64:
    """Indices, ascending, of the first tokens by rank [n] whose masses [n] sum to ``limit``: a
    token stays while those before it do not reach it. Lower indices come first on ties."""
    order = np.argsort(rank, kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    return np.sort(order[before < limit])


def nearest(distance: Float64, count: int) -> Int64:
    """[count] ids of the least distances, least first, lower ids first on ties.

    Args:
        distance: [V].
        count: At most V.
    """
    # The least of every few tokens: the count-th of those is a threshold that at least count
    # tokens reach, and rarely many more, found without ordering the whole row.
    columns = len(distance) // _STRIDE
    ids = np.arange(len(distance))
    if 0 < count < columns:
        peaks = distance[: columns * _STRIDE].reshape(_STRIDE, columns).min(axis=0)
        ids = np.flatnonzero(distance <= np.partition(peaks, count - 1)[count - 1])
    return ids[np.argsort(distance[ids], kind="stable")[:count]]
