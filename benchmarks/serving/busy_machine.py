"""Decode steps beside other programs that want the same cores.

    python -m benchmarks.serving.busy_machine ARTIFACT… [--sequences 1,16] [--seconds 3]
        [--rounds N] [--beside TEXT] [--json FILE]

Steps a second of one engine alone, beside one busy loop, beside a busy loop a core, and of each of
two engines at once, every time in processes of its own. Artifacts take turns within a round; the
median over rounds counts. On an otherwise idle machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.steps.cost_growth import BLOCK, CONTEXT, loaded
from optc.artifact.artifact import Artifact
from optc.proof.bench.batches import block_count, step_batch
from optc.system.hardware.target import usable_threads

#: Steps before the clock starts: so many are needed until a shape is replayed.
WARM_UP = 40


def serve(folder: Path, sequences: int, seconds: float) -> None:
    """One engine: say that it is ready, wait for a line, print its steps a second."""
    with loaded(Artifact.open(folder, "size")) as executable:
        spec = executable.spec
        executable.allocate_kv((block_count(sequences, CONTEXT, BLOCK),) * len(spec.groups), BLOCK)
        batch = step_batch(spec, sequences, 1, CONTEXT, BLOCK)
        for _ in range(WARM_UP):
            executable.step(batch)
        print("ready", flush=True)
        sys.stdin.readline()
        steps, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds:
            executable.step(batch)
            steps += 1
        print(steps / passed, flush=True)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Other programs that never wait."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def steps_per_s(folder: Path, sequences: int, seconds: float, engines: int, loops: int) -> float:
    """Steps a second of an engine, the mean of all, beside so many busy loops."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.serving.busy_machine",
        os.fspath(folder),
        "--serve",
    ]
    command += ["--sequences", str(sequences), "--seconds", str(seconds)]
    pipe = subprocess.PIPE
    servers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(engines)
    ]
    for server in servers:
        assert server.stdout is not None
        if not server.stdout.readline():
            raise SystemExit("an engine failed to start")
    with busy_loops(loops):
        for server in servers:
            assert server.stdin is not None
            server.stdin.write("\n")
            server.stdin.flush()
        return statistics.mean(float(server.communicate()[0]) for server in servers)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.busy_machine", description=__doc__)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--sequences", default="1,16")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--beside", default="", help="only what is called so, for example alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    counts = [int(count) for count in args.sequences.split(",")]
    if args.serve:
        serve(args.artifacts[0], counts[0], args.seconds)
        return
    situations = {
        "alone": (1, 0),
        "one busy loop": (1, 1),
        "a busy loop a core": (1, usable_threads()),
        "two engines": (2, 0),
    }
    rows = []
    for sequences in counts:
        for name, (engines, loops) in situations.items():
            if args.beside not in name:
                continue
            found: dict[str, list[float]] = {folder.name: [] for folder in args.artifacts}
            for _ in range(args.rounds):
                for folder in args.artifacts:
                    rate = steps_per_s(folder, sequences, args.seconds, engines, loops)
                    found[folder.name].append(rate)
            medians = {name: round(statistics.median(r), 1) for name, r in found.items()}
            rows.append(
                {"sequences": sequences, "beside": name, "steps_per_s": medians, "rounds": found}
            )
            print(json.dumps(rows[-1]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
