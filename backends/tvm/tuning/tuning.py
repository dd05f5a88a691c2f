"""Which schedule of a workload is fastest: candidates, and the comparison of their times.

Nothing here measures: a `Timer` does (`optc.backends.tvm.tuning.tuning_child`), and tests bring
their own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.tuning.schedule import FETCHERS, Schedule, Workload, schedule_without

#: Row counts that are measured, with their weights: single rows are most steps of most servers.
ROWS = {1: 3, 4: 1, 8: 1, 16: 2, 64: 1, 256: 1}
#: Rounds in which the candidates take turns.
ROUNDS = 9
#: Share of the time that a candidate must save over all row counts to replace the best so far.
MARGIN = 0.03
#: Share of the time that it may lose at any single row count.
TOLERANCE = 0.03

#: Seconds of one call of a schedule with so many rows.
Timer = Callable[[Schedule, int], float]
#: Whether the time to measure is over.
Expired = Callable[[], bool]


@dataclass(frozen=True)
class Choice:
    """The result for one workload.

    Attributes:
        schedule: The fastest that was found.
        gain: Share of the default's time that it saves, the weighted geometric mean over row
            counts; 0 for the default.
    """

    schedule: Schedule
    gain: float


def choose(workload: Workload, isa: Isa, timer: Timer, expired: Expired) -> Choice:
    """Change one parameter after the other to its fastest value.

    Candidates take turns in every round and their medians are compared. One that is not clearly
    faster than what it would replace loses, so that noise leaves the default. When the time is
    over, parameters that were not compared stay as they are; the first always is.
    """
    best = schedule_without(workload, isa)
    ratio = 1.0
    for index, variants in enumerate((_heights, _halves, _fetchers, _chunks)):
        if index and expired():
            break
        schedules = [best, *(other for other in variants(best, isa, workload.n) if other != best)]
        if len(schedules) > 1:
            best, gained = fastest(schedules, _measure(schedules, timer))
            ratio *= gained
    return Choice(best, 1 - ratio)


def _heights(best: Schedule, isa: Isa, n: int) -> Iterator[Schedule]:
    """Other heights of the tiles; those that spill registers measure badly and lose."""
    for many in (6, 8, 12) if isa.lanes == 16 else (3, 4):
        yield replace(best, many=many)


def _halves(best: Schedule, isa: Isa, n: int) -> Iterator[Schedule]:
    if best.many:
        yield replace(best, halves=not best.halves)


def _fetchers(best: Schedule, isa: Isa, n: int) -> Iterator[Schedule]:
    for fetch in FETCHERS:
        yield replace(best, fetch=fetch)


def _chunks(best: Schedule, isa: Isa, n: int) -> Iterator[Schedule]:
    """Rows are split where there are fewer blocks than tasks should be (`matmul_tasks.TASKS`)."""
    for rows in (24, 96) if n < 64 * 64 else ():
        yield replace(best, chunk_rows=rows)


def _measure(schedules: Sequence[Schedule], timer: Timer) -> list[dict[int, float]]:
    """Median seconds of every schedule by row count."""
    samples: list[dict[int, list[float]]] = [{rows: [] for rows in ROWS} for _ in schedules]
    for turn in range(ROUNDS):
        first = turn % len(schedules)  # nobody always comes first
        for rows in ROWS:
            for index in (*range(first, len(schedules)), *range(first)):
                samples[index][rows].append(timer(schedules[index], rows))
    return [{rows: statistics.median(s) for rows, s in sample.items()} for sample in samples]


def score(times: dict[int, float], base: dict[int, float]) -> float:
    """Time as a share of the base's: the geometric mean over row counts, weighted by `ROWS`."""
    logs = sum(weight * math.log(times[rows] / base[rows]) for rows, weight in ROWS.items())
    return math.exp(logs / sum(ROWS.values()))


def fastest(
    schedules: Sequence[Schedule], times: Sequence[dict[int, float]]
) -> tuple[Schedule, float]:
    """The winner against the first schedule, and its time as a share of the first one's."""
    winner, least = schedules[0], 1.0
    for schedule, medians in zip(schedules[1:], times[1:], strict=True):
        bounded = all(medians[rows] <= times[0][rows] * (1 + TOLERANCE) for rows in ROWS)
        ratio = score(medians, times[0])
        if bounded and ratio <= 1 - MARGIN and ratio < least:
            winner, least = schedule, ratio
    return winner, least
