"""Resident memory of this process, and how much it grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Resident(NamedTuple):
    """Bytes resident now: all of it, and what is not of files."""

    all: int
    anonymous: int


def resident() -> Resident:
    """Of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        name: 1024 * int(value.split()[0])
        for name, value in (line.split(":", 1) for line in lines)
        if name in ("VmRSS", "RssAnon")
    }
    return Resident(sizes["VmRSS"], sizes["RssAnon"])


def growth_percent(samples: Sequence[tuple[float, float]]) -> float | None:
    """By how many percent something grew in the second half of ``samples`` (seconds, amount).

    The slope between each pair of samples, the median of them (Theil and Sen), over the half's
    time, so that a few high samples do not count. None with fewer than four samples in that half.
    """
    begun, ended = samples[0][0], samples[-1][0]
    half = [sample for sample in samples if sample[0] >= (begun + ended) / 2]
    if len(half) < 4:
        return None
    slope = statistics.median(
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(half) for b in half[i + 1 :]
    )
    middle = statistics.median(amount for _, amount in half)
    return 100 * slope * (half[-1][0] - half[0][0]) / middle
