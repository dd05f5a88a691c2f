"""Weights of sparse mixers (arXiv:2409.12136) in NumPy, and probes that tell their thresholds.

An expert is weighed by a softmax among those that are left when it is chosen, and of these its
rivals: the gap to them is at most a threshold times the larger of their magnitude and its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]

#: Thresholds lie below; then a rival has the sign of the expert that it comes near.
LARGEST_THRESHOLD = 0.5
#: How near to the edge, of the gap at it, a probe's rival lies on either side. A gap that is
#: measured in another way, such as in the rival's magnitude alone, differs by more.
_NEAR_EDGE = 1e-3
_ROWS = 8


def weights_among_rivals(logits: Float32, experts: Index, threshold: float) -> Float32:
    """The weights [T, k] of the experts [T, k], the largest k in any order, of logits [T, E], no
    two of a row the same and none zero."""
    own = np.take_along_axis(logits, experts, -1)[:, :, None]
    others = logits[:, None, :]
    ratio = (own - others) / np.maximum(np.abs(others), own)
    near = (others <= own) & (ratio <= np.float32(threshold))
    powers = np.where(near, np.exp(others - own), np.float32(0))
    result: Float32 = np.reciprocal(powers.sum(-1))
    return result


def edge_probes(experts: int, chosen: int, threshold: float) -> Float32:
    """Logits [T, E] that show where rivals end: of the expert of each turn, all of one sign, a
    rival lies just inside and just outside."""
    rng = np.random.default_rng(experts)
    rows = []
    for turn in range(min(chosen, experts - 1)):
        for sign in (1, -1):
            for beside in (-_NEAR_EDGE, _NEAR_EDGE):
                rows += [
                    _row(rng, experts, turn, sign * rng.uniform(1, 4), threshold * (1 + beside))
                    for _ in range(_ROWS)
                ]
    return np.array(rows, np.float32)


def _row(
    rng: np.random.Generator, experts: int, turn: int, best: float, at: float
) -> npt.NDArray[np.float64]:
    """Logits with ``turn`` experts above ``best``, one at the gap ``at`` below, the rest around."""
    size = abs(best) if best > 0 else abs(best) / (1 - at)
    gap = at * size
    above = best + gap * rng.uniform(0.1, 2.0, turn)
    below = best - gap * rng.uniform(0.05, 3.0, experts - turn - 2)
    result: npt.NDArray[np.float64] = rng.permutation([*above, best, best - gap, *below])
    return result
