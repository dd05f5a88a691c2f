"""Utilization of a step by the ceilings right beside it.

On a virtual machine the memory bandwidth changes by a factor of two within minutes, so that a step
and a ceiling which were not measured within the same moment say nothing together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np


def paired_utilization(
    amount: float, rounds_s: Sequence[float], samples: Sequence[Mapping[str, float]], name: str
) -> dict[str, float] | None:
    """Median of ``amount`` over each round's time over the ceiling then, with its tenth and
    ninetieth percentile (``low``, ``high``); None if the ceiling was not measured.

    Args:
        amount: Bytes or operations of a step.
        rounds_s: [n] seconds of the step.
        samples: [n + 1] ceilings before each round, and after the last one; the mean of those
            around a round is its own.
        name: Which ceiling.
    """
    if not rounds_s or name not in samples[0]:
        return None
    ceilings = [(before[name] + after[name]) / 2 for before, after in pairwise(samples)]
    shares = [amount / s / c for s, c in zip(rounds_s, ceilings, strict=True)]
    low, median, high = np.percentile(shares, (10, 50, 90)).tolist()
    return {"median": median, "low": low, "high": high}
