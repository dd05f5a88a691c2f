"""The load time of an artifact, and the memory to serve it beside its weights and KV pool.

    python -m benchmarks.steps.resident ARTIFACT… [--rounds 5] [--json FILE]

Each round is a process of its own: it loads the artifact with every file's digest checked (files
are in the page cache, an untimed round reads them first), answers 16 prompts of 256 tokens with 16
tokens each at once, and states its peak resident memory. ``rest_mb`` is that without the weights
and the KV pool. Medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import optc

KV_MEMORY = "128MiB"
SEQUENCES, PROMPT, OUTPUT = 16, 256, 16


def serve(path: Path) -> dict[str, Any]:
    """One round, in this process."""
    begun = time.perf_counter()
    engine = optc.load(path, kv_memory=KV_MEMORY, cost_cache=False)
    load_s = time.perf_counter() - begun
    with engine:
        spec, plan = engine.spec, engine.kv_plan
        draw = np.random.default_rng(0)
        prompts = draw.integers(3, spec.vocab_size, (SEQUENCES, PROMPT)).tolist()
        params = optc.SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
        for output in engine.generate(prompts, params):
            output.raise_for_error()
        peak = _peak_resident_bytes()
    weights = sum(file.stat().st_size for file in path.glob("engines/target/weights.bin"))
    return {
        "load_s": load_s,
        "peak_resident_mb": peak / 1e6,
        "weights_mb": weights / 1e6,
        "kv_pool_mb": plan.bytes / 1e6,
        "rest_mb": (peak - weights - plan.bytes) / 1e6,
    }


def _peak_resident_bytes() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1])


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Medians over processes, the first of which only warms the files."""
    command = [sys.executable, "-m", "benchmarks.steps.resident", str(path), "--once"]
    found = []
    for _ in range(rounds + 1):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout))
    medians = {key: statistics.median(one[key] for one in found[1:]) for key in found[0]}
    return {"artifact": path.name} | {key: round(value, 3) for key, value in medians.items()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.steps.resident", description=__doc__)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(serve(arguments.artifacts[0])))
        return
    rows = [measure(path.resolve(), arguments.rounds) for path in arguments.artifacts]
    for row in rows:
        print(json.dumps(row))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
