"""Compare schedules of the integer matmul with the default, one changed parameter each.

Run ``python -m benchmarks.micro.schedules --shapes 3072x576,576x1536 [--seconds 7] [--write FILE]
[--json FILE]``.

For int8 (per channel), int4 (groups of 32, zero points) and the same with integer scales: time of
every candidate over the default's by rows, medians of rounds in which they take turns, and the
weighted geometric mean that ``optc compile --tune`` decides by. ``--write`` adds a schedule for
each shape to a file: the best candidate if it wins by that rule, else the default.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.backends.tvm.tuning.kernel_timer import KernelTimer, weight_pool
from optc.backends.tvm.tuning.schedule import (
    FETCHERS,
    KERNEL,
    TWO_LEVEL,
    Schedule,
    Workload,
    schedule_without,
)
from optc.backends.tvm.tuning.schedule_files import read_schedules, write_schedules
from optc.backends.tvm.tuning.tuning import ROWS, fastest, score
from optc.target import parse_target, usable_threads

#: Kernel, bits, group size, zero points.
FORMATS = ((KERNEL, 8, 0, False), (KERNEL, 4, 32, True), (TWO_LEVEL, 4, 32, True))


def candidates(default: Schedule) -> Iterator[Schedule]:
    """The default and what differs from it in one place."""
    yield default
    for many in (6, 8, 12):
        if many != default.many:
            yield replace(default, many=many)
    yield replace(default, many=default.many or 8, halves=not default.halves)
    for fetch in FETCHERS:
        if fetch != default.fetch:
            yield replace(default, fetch=fetch)


def measure(
    schedules: Sequence[Schedule], timer: KernelTimer, seconds: float
) -> list[dict[int, float]]:
    """Median seconds of each schedule by rows."""
    for schedule in schedules:
        timer(schedule, 1)  # compiles
    samples: list[dict[int, list[float]]] = [{rows: [] for rows in ROWS} for _ in schedules]
    turn, ending = 0, time.perf_counter() + seconds
    while turn < 3 or time.perf_counter() < ending:
        for rows in ROWS:
            for index in range(len(schedules)):
                index = (index + turn) % len(schedules)
                samples[index][rows].append(timer(schedules[index], rows))
        turn += 1
    return [{rows: statistics.median(s) for rows, s in sample.items()} for sample in samples]


def compare(workload: Workload, isa: Isa, seconds: float) -> tuple[Schedule, dict[str, Any]]:
    """Measure and print one workload; returns the winner, and the figures for ``--json``."""
    default = schedule_without(workload, isa)
    schedules = list(candidates(default))
    pool = weight_pool(workload.n * workload.k)
    times = measure(schedules, KernelTimer(workload, isa, pool), seconds)
    microseconds = {rows: 1e6 * t for rows, t in times[0].items()}
    print(f"{workload.kernel} {workload.n}x{workload.k} int{workload.bits}, default us by rows:")
    print("  " + ", ".join(f"{rows}: {value:.0f}" for rows, value in microseconds.items()))
    others = []
    for schedule, medians in zip(schedules[1:], times[1:], strict=True):
        changed = {k: v for k, v in vars(schedule).items() if v != getattr(default, k)}
        mean = score(medians, times[0])
        ratios = {rows: medians[rows] / times[0][rows] for rows in ROWS}
        by_rows = "  ".join(f"{rows}: {ratio:.3f}" for rows, ratio in ratios.items())
        print(f"  {changed!s:32} {mean:.3f}  by rows {by_rows}", flush=True)
        others.append({"changed": changed, "ratio": mean, "ratio_by_rows": ratios})
    winner, ratio = fastest(schedules, times)
    record = {
        "workload": asdict(workload),
        "default": asdict(default),
        "default_us_by_rows": microseconds,
        "others": others,
        "winner": asdict(winner),
        "ratio": ratio,
    }
    return winner, record


def main() -> None:
    """Parse the command line, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shapes", required=True, help="NxK, separated by commas")
    parser.add_argument("--seconds", type=float, default=7, help="for each shape and format")
    parser.add_argument("--write", type=Path, help="file of schedules to extend")
    parser.add_argument("--json", type=Path, help="file for all figures")
    arguments = parser.parse_args()
    isa = isa_of(parse_target("native"))
    threads = usable_threads()
    want_threads(threads)
    path: Path | None = arguments.write
    known = dict(read_schedules(path)) if path is not None and path.exists() else {}
    records = []
    for shape in arguments.shapes.split(","):
        n, k = map(int, shape.split("x"))
        for kernel, bits, group_size, asymmetric in FORMATS:
            workload = Workload(kernel, isa.name, n, k, bits, group_size, asymmetric)
            known[workload], record = compare(workload, isa, arguments.seconds)
            records.append(record)
    if path is not None:
        write_schedules(path, known)
    if arguments.json is not None:
        report = {"schema": 1, "isa": isa.name, "threads": threads, "results": records}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
