"""The visible part of a mask of scores, and what distance takes from them: from numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

#: A token whose score lies so far below the row's own is not seen: masks take 1e4 and more.
_HIDDEN = -5000.0
#: Distance from which a slope is taken: a power of two, so that a bias that was computed in
#: bfloat16 is exact there.
_FAR = 8
#: Tokens that a probe needs.
LEAST = _FAR + 1
#: Largest error of a bias relative to the largest: what bfloat16 rounds twice.
_ROUNDING = 2.0**-7
#: Largest difference of biases at one distance.
_EQUAL = 1e-5


@dataclass(frozen=True)
class Pattern:
    """The tokens that a causal mask shows, and the bias that it adds.

    Attributes:
        window: Tokens that a row sees, itself included; 0 = all.
        chunk: Tokens of a chunk, of which rows see their own only; 0 = none.
        slopes: What each head's scores lose for a token of distance [H]; None where they lose
            nothing.
        biases: What is added to each head's scores by distance [H, N], of which a token farther
            away gets the last one (T5: Raffel et al., 2020); None where slopes say it all.
    """

    window: int = 0
    chunk: int = 0
    slopes: tuple[float, ...] | None = None
    biases: tuple[tuple[float, ...], ...] | None = None


def pattern_of(bias: Float64) -> Pattern | str:
    """The pattern of what is added to scores [H, S, S], or why it is none.

    What a row has in common does not count: softmax takes it away.
    """
    own = np.diagonal(bias, axis1=1, axis2=2)[:, :, None]
    if not np.isfinite(own).all() or (own < _HIDDEN).any():
        return "a row does not see itself"
    level = bias - own
    seen = level > _HIDDEN
    if not (seen == seen[0]).all():
        return "heads see different tokens"
    found = visible_of(seen[0])
    if isinstance(found, str):
        return found
    return _with_slopes(np.where(seen, level, 0.0), seen[0], found)


def visible_of(seen: Bool) -> Pattern | str:
    """Window or chunk of what rows see [S, S], or why it is neither."""
    index = np.arange(len(seen))
    distance = index[:, None] - index
    if seen[distance < 0].any():
        return "a row sees tokens behind it"
    causal = distance >= 0
    if (seen == causal).all():
        return Pattern()
    window = int(seen[-1].sum())
    if (seen == (causal & (distance < window))).all():
        return Pattern(window=window)
    apart = np.flatnonzero(~seen[:, 0])
    chunk = int(apart[0]) if len(apart) else len(seen)
    if (seen == (causal & (index[:, None] // chunk == index // chunk))).all():
        return Pattern(chunk=chunk)
    return "what rows see is neither a window nor a chunk"


def _with_slopes(level: Float64, seen: Bool, found: Pattern) -> Pattern | str:
    index = np.arange(len(seen))
    behind = np.where(seen, index[:, None] - index, 0)
    if not level.any():
        return found
    reach = min(_FAR, int(behind.max()))
    row, column = np.argwhere(behind == reach)[-1]
    slopes = -level[:, row, column] / reach
    wanted = -slopes[:, None, None] * behind
    limit = _ROUNDING * np.abs(wanted).max(axis=(1, 2), keepdims=True) + 1e-6
    if (np.abs(level - wanted) > limit).any():
        return _with_biases(level, behind, found)
    return Pattern(found.window, found.chunk, tuple(float(s) for s in slopes))


def _with_biases(level: Float64, behind: npt.NDArray[np.int64], found: Pattern) -> Pattern | str:
    """With an entry for each distance that the probe shows."""
    last_row = level[:, -1, ::-1]  # by distance
    differs = np.abs(level - last_row[:, behind]) > _EQUAL
    if differs[:, behind > 0].any():
        return "what is added to scores does not depend on distance alone"
    biases = tuple(tuple(float(one) for one in head) for head in last_row)
    return Pattern(found.window, found.chunk, None, biases)
