"""Does handing in a request hold up the step that is running?

    python -m benchmarks.serving.submitting ARTIFACT [--seconds 60] [--json FILE]

While four requests decode, another thread does one of these at random instants, drawn in turns:

- ``nothing``: it sleeps on; any random instant meets long steps more often than short ones, and
  this is what that comes to;
- ``woken``: it wakes up and does nothing;
- ``ids``, ``text``: it submits a prompt of as many tokens as the context holds, or its text;
- ``text, held``: it encodes that text by a call that keeps the interpreter to itself, as `submit`
  did once.

Prints how long after the instant the step ended that was running then, in milliseconds; the mean
is the most telling, as others' programs add to every line alike.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

import optc
from optc.proof.simulate.service import ServedStep, Watched
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle

KINDS = ("nothing", "woken", "ids", "text", "text, held")
DECODING = 4
#: Mean pause between two instants, and the shortest: a request before it has ended by then.
PAUSE_S, LEAST_PAUSE_S = 0.012, 0.015
WARM_UP = 60


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving.submitting", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with optc.load(args.artifact, prefix_cache=False) as engine:
        result = measure(engine, args.seconds)
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(engine: Engine, seconds: float) -> dict[str, Any]:
    """Milliseconds until the running step ended, by what was done."""
    watched = watch(engine)
    tokens = engine.max_context - 3
    prompt = np.random.default_rng(0).integers(engine.spec.vocab_size, size=tokens).tolist()
    assert engine.tokenizer is not None
    tokenizer, text = engine.tokenizer, engine.tokenizer.decode(prompt[: tokens // 2])
    acts: dict[str, Callable[[], Handle | None]] = {
        "woken": lambda: None,
        "ids": lambda: engine.submit(prompt, output(1)),
        "text": lambda: engine.submit(text, output(1)),
        "text, held": lambda: engine.submit(tokenizer.backend.encode(text).ids, output(1)),
    }
    for count in range(1, DECODING + 2):  # every shape of a step is known before
        engine.generate([[0]] * count, output(WARM_UP))
    watched.steps.clear()
    instants: list[tuple[str, float]] = []
    decoding: list[Handle] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        decoding = keep_decoding(engine, decoding)
        kind = random.choice(KINDS)
        due = time.perf_counter() + LEAST_PAUSE_S + random.expovariate(1 / PAUSE_S)
        time.sleep(max(0, due - time.perf_counter()) + (LEAST_PAUSE_S if kind == "nothing" else 0))
        instants.append((kind, due))
        handle = acts[kind]() if kind in acts else None
        if handle is not None:
            handle.result()
    return summary(instants, list(watched.steps))


def watch(engine: Engine) -> Watched:
    """Note the engine's steps from now on."""
    found: list[Watched] = []

    def wrap(core: Any) -> None:
        found.append(Watched(core.executable))
        core.executable = cast("Any", found[0])

    engine._worker.call(wrap)
    return found[0]


def keep_decoding(engine: Engine, handles: list[Handle]) -> list[Handle]:
    """As many requests as are to decode, new ones where some have ended."""
    left = [handle for handle in handles if not handle.done]
    new = [engine.submit([0], output(engine.max_context - 2)) for _ in range(DECODING - len(left))]
    if new:
        time.sleep(LEAST_PAUSE_S)
    return left + new


def summary(instants: list[tuple[str, float]], steps: list[ServedStep]) -> dict[str, Any]:
    """For each kind how many instants fell into a step, and how long that went on."""
    ends = [step.ended_s for step in steps]
    left: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind, due in instants:
        at = bisect_left(ends, due)
        if at < len(steps) and steps[at].began_s <= due:
            left[kind].append(1e3 * (ends[at] - due))
    return {
        kind: {
            "instants": len(times),
            "mean": round(float(np.mean(times)), 3),
            **{f"p{q}": round(float(np.percentile(times, q)), 3) for q in (50, 90, 99)},
        }
        for kind, times in left.items()
    }


def output(tokens: int) -> optc.SamplingParams:
    """Greedy, of fixed length."""
    return optc.SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)


if __name__ == "__main__":
    main()
