"""Continuous batching against static batches, mixed output lengths.

    python -m benchmarks.serving.batching NAME=ARTIFACT ... [--lengths bimodal] [--json FILE]

All ``--requests`` (160) are there at the start, with prompts of 16 random tokens and greedy output.
Output lengths are log-normal (median 24, sigma 1.2, at most 320 tokens), or ``bimodal``: 8 tokens,
every eighth 256. Each mode runs once a round, in turn; given are medians over the rounds. A step
holds at most ``--sequences`` (16) requests. A static batch is as many, handed in together when the
last one has ended; those of it that ended cost nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import optc


def lengths_of(distribution: str, requests: int, rng: np.random.Generator) -> list[int]:
    """Output lengths in tokens."""
    if distribution == "bimodal":  # every eighth is long
        return [256 if number % 8 == 3 else 8 for number in range(requests)]
    return np.clip(np.exp(rng.normal(np.log(24), 1.2, requests)), 1, 320).astype(int).tolist()


#: How requests are handed in.
MODES = ("continuous", "static")


def run(path: Path, mode: str, sequences: int, lengths: list[int]) -> dict[str, Any]:
    """One mode on requests of the given output lengths."""
    rng, requests = np.random.default_rng(len(lengths)), len(lengths)
    batch = requests if mode == "continuous" else sequences
    with optc.load(path, verify="size", max_sequences=sequences, prefix_cache=False) as engine:
        prompts = rng.integers(0, engine.spec.vocab_size, (requests, 16)).tolist()
        params = [greedy(length) for length in lengths]
        engine.generate(prompts[:1], greedy(2))  # warm up
        steps = engine.metrics().steps
        began = time.perf_counter()
        ends: list[float] = []
        for first in range(0, requests, batch):
            part = slice(first, first + batch)
            waited = time.perf_counter() - began
            outputs = engine.generate(prompts[part], params[part])
            ends += [waited + (output.metrics.e2e_s or 0.0) for output in outputs]
        seconds = time.perf_counter() - began
        steps = engine.metrics().steps - steps
    return {
        "tokens": sum(lengths),
        "tokens_per_s": sum(lengths) / seconds,
        "steps": steps,
        "e2e_p50_s": float(np.percentile(ends, 50)),
        "e2e_p90_s": float(np.percentile(ends, 90)),
    }


def greedy(length: int) -> optc.SamplingParams:
    return optc.SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)


def compare(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Medians of both modes, and how much more continuous batching gives than static batches."""
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for seed in range(args.rounds):
        lengths = lengths_of(args.lengths, args.requests, np.random.default_rng(seed))
        for mode in MODES:
            runs[mode].append(run(path, mode, args.sequences, lengths))
    result: dict[str, Any] = {
        mode: {key: statistics.median(r[key] for r in mine) for key in mine[0]}
        for mode, mine in runs.items()
    }
    speed = result["continuous"]["tokens_per_s"] / result["static"]["tokens_per_s"]
    return {**result, "continuous_over_static": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="+", metavar="NAME=ARTIFACT")
    parser.add_argument("--requests", type=int, default=160)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--lengths", choices=["lognormal", "bimodal"], default="lognormal")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {
        "lengths": args.lengths,
        "requests": args.requests,
        "sequences": args.sequences,
    }
    for named in args.artifacts:
        name, path = named.split("=", 1)
        result[name] = compare(Path(path), args)
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
