"""The savings of the prefix cache where many requests begin alike.

    python -m benchmarks.serving.prefix_cache ARTIFACT [--requests 16] [--prefix 1000] [--json FILE]

``--requests`` prompts of a shared prefix and 16 tokens of their own, one output token each,
submitted one after the other (each alone, so that its time to first token is its own work) and all
at once; without and with the cache. Rows are tokens of prompts that were really computed.
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

OWN_TOKENS = 16
PARAMS = optc.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


def prompts_of(vocab: int, requests: int, prefix: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, vocab, prefix).tolist()
    return [shared + rng.integers(0, vocab, OWN_TOKENS).tolist() for _ in range(requests)]


def run(artifact: Path, cache: bool, requests: int, prefix: int) -> dict[str, Any]:
    """One artifact with or without the cache."""
    with optc.load(artifact, prefix_cache=cache, verify="size") as engine:
        vocab = engine.spec.vocab_size
        engine.generate(prompts_of(vocab, 1, prefix, seed=9), PARAMS)  # warm up
        before = engine.metrics().prompt_tokens
        alone = [
            engine.generate([prompt], PARAMS)[0].metrics.ttft_s or 0.0
            for prompt in prompts_of(vocab, requests, prefix, seed=0)
        ]
        between = engine.metrics().prompt_tokens
        began = time.perf_counter()
        burst = engine.generate(prompts_of(vocab, requests, prefix, seed=1), PARAMS)
        seconds = time.perf_counter() - began
        after = engine.metrics().prompt_tokens
    return {
        "rows": between - before,
        "first_ttft_ms": alone[0] * 1e3,
        "later_ttft_ms": statistics.median(alone[1:]) * 1e3,
        "burst_rows": after - between,
        "burst_s": seconds,
        "burst_ttft_p50_ms": statistics.median(o.metrics.ttft_s or 0.0 for o in burst) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prefix", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    without, with_cache = (
        run(args.artifact, cache, args.requests, args.prefix) for cache in (False, True)
    )
    result = {
        "requests": args.requests,
        "prefix_tokens": args.prefix,
        "own_tokens": OWN_TOKENS,
        "without": without,
        "with": with_cache,
        "rows_saved": 1 - with_cache["rows"] / without["rows"],
        "burst_rows_saved": 1 - with_cache["burst_rows"] / without["burst_rows"],
        "later_ttft_speedup": without["later_ttft_ms"] / with_cache["later_ttft_ms"],
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
