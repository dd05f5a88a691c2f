"""The slowdown of decoding at long contexts, beside what the bytes of KV explain.

    python -m benchmarks.serving.long_context ARTIFACT… [--contexts 128,1024,4096] [--json FILE]

One decode step at each context, the fastest of several passes over all of them, beside the bytes
that it must read (weights and KV). ``explained`` is the growth of the bytes over that of the time
from the first context on: 1 means that a byte of KV is read as fast as a byte of weights, below 1
that long contexts lose more than their bytes explain.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.proof.bench.profile import Shape, profile
from optc.proof.bench.utilization import measurable, open_instruments
from optc.system.hardware.target import usable_threads

#: How often all shapes are measured in turn.
PASSES = 5


def measure(path: Path, contexts: list[int], sequences: list[int], rounds: int) -> dict[str, Any]:
    """All figures of one artifact as one JSON object."""
    artifact = Artifact.open(path, "size")
    entry = artifact.engine()
    threads = usable_threads()
    backend = measurable(entry.backend)
    folder = artifact.engine_folder(entry)
    profiler = backend.open_profiler(folder, entry.spec, entry.data, threads)
    try:
        instruments = open_instruments(artifact, threads)
        shapes = [Shape("decode", count, 1, context) for count in sequences for context in contexts]
        # In turns, so that a disturbed moment does not fall on one shape only.
        passes = [profile(profiler, entry.spec, instruments, shapes, rounds) for _ in range(PASSES)]
        steps = [min(same, key=lambda step: step["step_ms"]) for same in zip(*passes, strict=True)]
    finally:
        profiler.close()
    rows: list[dict[str, Any]] = []
    for step in steps:
        total = sum(kernel["bytes"] for kernel in step["kernels"])
        attention = [k for k in step["kernels"] if k["name"].startswith("paged_attention")]
        first = rows[-(len(rows) % len(contexts))] if len(rows) % len(contexts) else None
        row = {
            "sequences": step["sequences"],
            "context": step["context"],
            "step_ms": step["step_ms"],
            "bytes": total,
            "gb_per_s": total / step["step_ms"] / 1e6,
            "attention_ms": sum(k["ms"] for k in attention),
            "kv_gb_per_s": sum(k["bytes"] for k in attention)
            / sum(k["ms"] for k in attention)
            / 1e6,
        }
        if first is not None:
            growth = row["step_ms"] / first["step_ms"]
            row["explained"] = total / first["bytes"] / growth
        rows.append(row)
    read = instruments.meter.ceilings()["read"].best / 1e9
    kv = entry.spec.layers[0].dtype
    return {"artifact": path.name, "kv": kv, "threads": threads, "read": read, "steps": rows}


def show(report: dict[str, Any]) -> None:
    """Print one artifact's figures as a table."""
    print(f"{report['artifact']}, KV {report['kv']}, read {report['read']:.1f} GB/s")
    print("sequences  context  step ms    MB    GB/s  attention ms  KV GB/s  explained")
    for row in report["steps"]:
        explained = f"{row['explained']:9.2f}" if "explained" in row else "        -"
        print(
            f"{row['sequences']:9} {row['context']:8} {row['step_ms']:8.2f}"
            f" {row['bytes'] / 1e6:6.0f} {row['gb_per_s']:6.1f} {row['attention_ms']:12.2f}"
            f" {row['kv_gb_per_s']:8.1f} {explained}"
        )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.long_context", description=__doc__)
    parser.add_argument("artifacts", type=Path, nargs="+")
    parser.add_argument("--contexts", default="128,1024,4096")
    parser.add_argument("--sequences", default="1,4")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    contexts = [int(n) for n in args.contexts.split(",")]
    sequences = [int(n) for n in args.sequences.split(",")]
    reports = [measure(path, contexts, sequences, args.rounds) for path in args.artifacts]
    for report in reports:
        show(report)
    if args.json:
        args.json.write_text(json.dumps(reports, indent=1) + "\n")


if __name__ == "__main__":
    main()
