"""Decoding by an engine whose weights are larger than the memory that it may take.

    python -m benchmarks.steps.beyond_memory ARTIFACT [--limit 900MB] [--resident 0.2,0.4]
        [--rounds 3] [--tokens 48] [--json FILE]

A control group of memory (version 2 or 1) holds page cache and all to the limit: half of the
weights' size unless it is given. In turns, each in a process of its own whose weights are not in
the page cache before, one sequence is decoded

- ``free``: without a limit, all weights mapped;
- ``mapped``: within it, all weights mapped: page faults read what the kernel has dropped;
- ``ahead``: within it, weights are read ahead and none are kept;
- ``keep-0.4``: hot weights of 0.4 of the limit are kept, too.

Every round has a prompt of its own and draws tokens at temperature 1 with a seed. Stated are
decode tokens/s, and for each decoded token bytes read from the disk and page faults that waited for
it, medians over rounds behind the first, which warms up. Exits with 1 if tokens differ.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import optc
from benchmarks.steps.control_group import NotPermittedError, enter, forget, limited
from optc.backends.tvm.loaded import loader
from optc.proof.bench.disk_reads import read_bytes
from optc.proof.roofline.beyond_memory import disk_ceiling
from optc.system.units import parse_bytes

KV_MEMORY, PROMPT = "32MiB", 16
#: Nothing stays: a budget of one page.
NOTHING = 4096


def decode(path: Path, resident: int | None, rounds: int, tokens: int) -> dict[str, Any]:
    """In this process: figures of each round, and all tokens."""
    if resident is None:  # as without a budget, whatever memory there is
        vars(loader)["resident_bytes"] = lambda *_: None
    changes: Any = {} if resident is None else {"resident_memory": resident}
    draw, found, drawn = np.random.default_rng(0), [], []
    with optc.load(path, kv_memory=KV_MEMORY, verify="size", **changes) as engine:
        for index in range(rounds + 1):
            prompt = draw.integers(3, engine.spec.vocab_size, PROMPT).tolist()
            params = optc.SamplingParams(
                max_tokens=tokens, temperature=1.0, seed=index, ignore_eos=True
            )
            handle = engine.submit(prompt, params)
            deltas = iter(handle)
            next(deltas)  # the prompt is read
            before = _counts()
            for _ in deltas:
                pass
            done = [after - was for after, was in zip(_counts(), before, strict=True)]
            output = handle.result()
            times = output.metrics.token_times_s
            found.append(
                {
                    "tokens_per_s": (tokens - 1) / (times[-1] - times[0]),
                    "ttft_s": times[0] - output.metrics.arrived_s,
                    "mb_per_token": done[0] / (tokens - 1) / 1e6,
                    "faults_per_token": done[1] / (tokens - 1),
                }
            )
            drawn.append(list(output.token_ids))
    medians = {key: statistics.median(one[key] for one in found[1:]) for key in found[0]}
    return {"figures": medians, "tokens": drawn}


def _counts() -> tuple[int, int]:
    return read_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def measure(options: argparse.Namespace, weights: Path) -> list[dict[str, Any]]:
    """All subjects, the first without a limit.

    Raises:
        NotPermittedError: There is no right to limit a process.
    """
    shares = [float(one) for one in options.resident.split(",")]
    subjects: list[tuple[str, bool, int | None]] = [
        ("free", False, None),
        ("mapped", True, None),
        ("ahead", True, NOTHING),
        *((f"keep-{share:g}", True, int(share * options.limit)) for share in shares),
    ]
    return [_subject(options, weights, *one) for one in subjects]


def _subject(
    options: argparse.Namespace, weights: Path, name: str, inside: bool, resident: int | None
) -> dict[str, Any]:
    forget(weights)
    command = [sys.executable, "-m", "benchmarks.steps.beyond_memory", str(options.artifact)]
    command += ["--once", "all" if resident is None else str(resident)]
    command += ["--rounds", str(options.rounds), "--tokens", str(options.tokens)]
    group = limited("beyond-memory", options.limit) if inside else nullcontext(None)
    with group as folder:
        start = None if folder is None else partial(enter, folder)
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=start
        )
    found: dict[str, Any] = {"subject": name, "resident_bytes": resident} | json.loads(done.stdout)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.steps.beyond_memory", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--limit", help="memory of the group [half of the weights]")
    parser.add_argument("--resident", default="0.2,0.4", help="shares of it for hot weights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        resident = None if options.once == "all" else int(options.once)
        print(json.dumps(decode(options.artifact, resident, options.rounds, options.tokens)))
        return
    options.artifact = options.artifact.resolve()
    (weights,) = options.artifact.glob("engines/target/weights.bin")
    size = weights.stat().st_size
    options.limit = parse_bytes(options.limit, "--limit") if options.limit else size // 2
    try:
        found = measure(options, weights)
    except NotPermittedError as error:
        sys.exit(f"no process can be limited here: {error}")
    report = _report(options, size, weights, found)
    print(json.dumps(report, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["equal_tokens"] else 1)


def _report(
    options: argparse.Namespace, size: int, weights: Path, found: list[dict[str, Any]]
) -> dict[str, Any]:
    disk = disk_ceiling(weights)
    free = found[0]["figures"]["tokens_per_s"]
    rows = [
        {
            "subject": one["subject"],
            "resident_mb": None if one["resident_bytes"] is None else one["resident_bytes"] / 1e6,
            "of_free": round(one["figures"]["tokens_per_s"] / free, 3),
            **{key: round(value, 3) for key, value in one["figures"].items()},
        }
        for one in found
    ]
    return {
        "artifact": options.artifact.name,
        "weights_mb": size / 1e6,
        "limit_mb": options.limit / 1e6,
        "disk_gb_per_s": None if disk is None else round(disk.best / 1e9, 2),
        "threads": len(os.sched_getaffinity(0)),
        "equal_tokens": all(one["tokens"] == found[0]["tokens"] for one in found),
        "results": rows,
    }


if __name__ == "__main__":
    main()
