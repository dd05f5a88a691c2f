"""Time of a step against rows, sequences, context and parameters, beside the roofline.

    python -m benchmarks.steps.cost_growth ARTIFACT… [--rounds 7] [--coarse]
        --json FILE [--plot FILE.svg]

Each series changes one quantity and keeps the others: rows of one sequence (what verification and
chunks of prefill cost), sequences of one row (batched decode), tokens of context at one row. The
last panel has one decode step of every artifact against its parameters. A step's roofline is the
sum over its kernels of the longer of bytes at the read bandwidth and operations at the peak, all
measured in the same run. A series' *unexplained step* is the largest growth from one point to the
next beyond the roofline's own, as a share of the time before it. Points of a series are measured
in turns, and the fastest of all rounds counts. ``--coarse`` takes a third of the points, for models
whose steps take long. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.steps.step_plots import plot
from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.bench.batches import block_count, step_batch
from optc.proof.bench.utilization import Instruments, open_instruments
from optc.proof.roofline.ceilings import ceilings_json, sample
from optc.proof.roofline.costs import step_work
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.target import usable_threads

BLOCK = 64
#: Rows and sequences: every one where tiles begin and end, then coarser.
COUNTS = (*range(1, 20), 24, 31, 32, 33, 40, 48, 63, 64, 65)
MANY_ROWS = (96, 128, 192, 256, 384, 512)
CONTEXTS = (64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
CONTEXT = 128
#: What of all these ``--coarse`` keeps: around the changes of tiles, and the ends.
COARSE = (1, 2, 4, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 64, 128, 256, 512, 2048, 8192)


@dataclass
class Point:
    """One shape of step: ``rows`` new rows of each of ``sequences``, ``context`` tokens after."""

    sequences: int
    rows: int
    context: int
    seconds: float = float("inf")
    roof_s: float = 0.0


def series(spec: StepInterface, *, coarse: bool) -> dict[str, list[Point]]:
    """The points of each series that the engine can run."""
    room, limit = spec.max_context, min(spec.max_sequences, spec.max_logit_rows)

    def chosen(points: tuple[int, ...], most: int) -> list[int]:
        return [n for n in points if n <= most and (n in COARSE or not coarse)]

    rows = chosen((*COUNTS, *MANY_ROWS), min(spec.max_rows, room))
    return {
        "rows": [Point(1, n, max(CONTEXT, n)) for n in rows],
        "sequences": [Point(n, 1, min(CONTEXT, room)) for n in chosen(COUNTS, limit)],
        "context": [Point(1, 1, n) for n in chosen(CONTEXTS, room)],
    }


def measure(folder: Path, rounds: int, *, coarse: bool = False) -> dict[str, Any]:
    """All series of one artifact."""
    artifact = Artifact.open(folder, "size")
    instruments = open_instruments(artifact, None)
    with loaded(artifact) as executable:
        spec = executable.spec
        found = series(spec, coarse=coarse)
        for points in found.values():
            for _ in range(rounds):
                sample(instruments.meter)
                for point in points:
                    point.seconds = min(point.seconds, step_seconds(executable, point))
        fill_roofs(found, spec, instruments)
    return {
        "artifact": folder.name,
        "weight_bytes": instruments.costs.weight_bytes,
        "ceilings": ceilings_json(instruments.meter),
        "series": {name: [asdict(p) for p in points] for name, points in found.items()},
        "unexplained_step": {name: unexplained(points) for name, points in found.items()},
    }


@contextmanager
def loaded(artifact: Artifact) -> Iterator[Executable]:
    """The artifact's engine on this thread."""
    entry = artifact.engine()
    executable = registry.step_backend(entry.backend).load(
        artifact.engine_folder(entry), entry.spec, entry.data, usable_threads()
    )
    try:
        yield executable
    finally:
        executable.close()


def step_seconds(executable: Executable, point: Point) -> float:
    """The fastest of three calls, after one that warms the caches as the step before would."""
    spec = executable.spec
    blocks = block_count(point.sequences, point.context, BLOCK)
    executable.allocate_kv((blocks,) * len(spec.groups), BLOCK)
    batch = step_batch(spec, point.sequences, point.rows, point.context, BLOCK)
    executable.step(batch)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        executable.step(batch)
        best = min(best, time.perf_counter() - started)
    return best


def fill_roofs(
    found: dict[str, list[Point]], spec: StepInterface, instruments: Instruments
) -> None:
    """Give every point its roofline, at the best ceilings of the run."""
    ceilings = {name: c.best for name, c in instruments.meter.ceilings().items()}
    for point in (p for points in found.values() for p in points):
        shape = ([point.rows] * point.sequences, [point.context] * point.sequences)
        work = step_work(spec, *shape, point.sequences)
        kernels = instruments.costs.kernels.values()
        point.roof_s = sum(cost.roof_s(work, ceilings) for cost in kernels)


def unexplained(points: list[Point]) -> float:
    """Largest growth between neighbours beyond the roofline's, as a share of the time before."""
    return max(
        (
            (after.seconds - before.seconds - max(0.0, after.roof_s - before.roof_s))
            / before.seconds
            for before, after in itertools.pairwise(points)
        ),
        default=0.0,
    )


def main() -> None:
    """Measure, store, plot."""
    parser = argparse.ArgumentParser(prog="benchmarks.steps.cost_growth", description=__doc__)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--coarse", action="store_true")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    results = []
    for folder in args.artifacts:
        print(f"{folder.name} …", file=sys.stderr)
        results.append(measure(folder, args.rounds, coarse=args.coarse))
        for name, share in results[-1]["unexplained_step"].items():
            print(f"{folder.name}: {name}: unexplained step {share:.2f}")
    args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
