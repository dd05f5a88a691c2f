"""The interval of a mean over windows by the bootstrap."""

from __future__ import annotations

import numpy as np

from optc.proof.gates.divergence import Float64

#: Share of the intervals that hold the mean over all such text.
CONFIDENCE = 0.95
_DRAWS = 2000


def mean_interval(figures: Float64) -> tuple[float, float] | None:
    """Interval of a mean of windows [W]; None of fewer than two, or where one is not finite.

    Windows are drawn again, with replacement, and the quantiles of their means taken (percentile
    bootstrap: Efron, 1979). Whole windows are drawn, because tokens of one depend on each other.
    """
    if len(figures) < 2 or not np.isfinite(figures).all():
        return None
    drawn = np.random.default_rng(0).integers(0, len(figures), (_DRAWS, len(figures)))
    beyond = (1 - CONFIDENCE) / 2
    low, high = np.quantile(figures[drawn].mean(axis=1), [beyond, 1 - beyond])
    return float(low), float(high)
