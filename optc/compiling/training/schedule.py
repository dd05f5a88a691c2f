"""The learning rate over a training: linear warm-up, then a cosine to zero."""

from __future__ import annotations

import math

#: Share of the steps in which the rate rises.
WARM_UP = 0.05


def rate_share(step: int, steps: int) -> float:
    """The share of the largest rate that holds in ``step``, counted from 0, of ``steps``."""
    rising = max(1, round(steps * WARM_UP))
    if step < rising:
        return (step + 1) / rising
    done = (step - rising) / max(1, steps - rising)
    return 0.5 * (1 + math.cos(math.pi * done))
