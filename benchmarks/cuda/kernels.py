"""The time of each kernel of a CUDA artifact's step, as CUPTI measures it through PyTorch.

    python -m benchmarks.cuda.kernels ARTIFACT [--context 512] [--concurrency 1,8,32]
        [--rounds 10] [--json FILE]

Kernels are launched one by one, so that each is seen by its name; the fastest step of the rounds
that a captured graph takes stands beside their sum: the rest is launches, copies and gaps. Without
a GPU, or without PyTorch for it, it ends with status 3 and the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.cuda.__main__ import WARM_UP, gpu_name, open_engine, require_gpu, shapes_of
from benchmarks.cuda.steps import engine_timers, fitting
from optc.errors import OptcError


def measure(engine: Any, shape: Any, rounds: int) -> dict[str, Any]:
    """Kernels of one step, the longest first, and the seconds of a step as one graph."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    timers = engine_timers(engine, shape)
    graph = min(timers["optc"].time() for _ in range(rounds + WARM_UP))
    eager = timers["optc without graphs"]
    eager.time()
    torch.zeros(1, device="cuda")  # PyTorch's own context, before it records
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(rounds):
            eager.time()
        torch.cuda.synchronize()
    seen = [e for e in recorded.key_averages() if e.device_time_total > 0]
    kernels = [
        {
            "kernel": event.key,
            "calls": event.count / rounds,
            "microseconds": event.device_time_total / rounds,
        }
        for event in sorted(seen, key=lambda e: -e.device_time_total)
    ]
    return {**vars(shape), "graph_ms": 1e3 * graph, "kernels": kernels}


def show(row: dict[str, Any]) -> None:
    """Print one step."""
    total = sum(kernel["microseconds"] for kernel in row["kernels"])
    print(
        f"{row['phase']} of {row['sequences']}, context {row['context']}: as a graph"
        f" {1e3 * row['graph_ms']:.0f} us, kernels {total:.0f} us"
    )
    for kernel in row["kernels"]:
        print(
            f"  {kernel['microseconds']:9.1f} us  {kernel['calls']:6.1f} calls"
            f"  {kernel['microseconds'] / total:5.1%}  {kernel['kernel'][:60]}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, measure, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.cuda.kernels", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    try:
        require_gpu()
        engine, _ = open_engine(args.artifact)
        shapes = fitting(engine.spec, shapes_of(args.concurrency, args.context))
        rows = [measure(engine, shape, args.rounds) for shape in shapes]
        engine.close()
    except OptcError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    for row in rows:
        show(row)
    if args.json:
        report = {"artifact": args.artifact.name, "gpu": gpu_name(), "steps": rows}
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
