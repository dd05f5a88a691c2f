"""The speed of one thing over that of another, in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

#: Either of the two.
Timed = Callable[[], object]


def speedup(ours: Timed, baseline: Timed, turns: int, most_seconds: float = math.inf) -> float:
    """Median seconds of ``baseline`` over those of ``ours``, which take turns: as many as are asked
    for, or as begin within ``most_seconds``, one at least."""
    seconds: tuple[list[float], list[float]] = [], []
    started = time.perf_counter()
    for _ in range(turns):
        for taken, run in zip(seconds, (ours, baseline), strict=True):
            begun = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begun)
        if time.perf_counter() - started > most_seconds:
            break
    return statistics.median(seconds[1]) / statistics.median(seconds[0])
