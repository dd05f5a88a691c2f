"""Two engines measured in turns, so that both see the same machine.

As of `optc.proof.bench.throughput`, each round of one beside a round of the other: the first is
first in even rounds and second in odd ones. The ratio of each pair of rounds is kept; the smallest
and the largest of five hold the median ratio with a probability of 94 % (`optc.proof.gates.speed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optc.proof.bench.result import BenchResult
from optc.proof.bench.throughput import result_of, serve_round
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.system.progress import Progress, no_progress

ROUNDS = 5
#: Figures of a round, all of which say more about speed the larger they are, but for the times.
METRICS = ("prefill_tokens_per_s", "decode_tokens_per_s", "ttft_ms", "tpot_ms")

#: Of whole calls, of models that do not generate text token by token.
CALL_METRICS = ("items_per_s", "call_ms")


@dataclass(frozen=True)
class Compared:
    """One figure of two engines.

    Attributes:
        metric: One of `METRICS`, or of `CALL_METRICS`.
        concurrency: Requests at once.
        a: Median over the first engine's rounds; None where nothing was decoded.
        b: Of the second.
        ratio: Median of the rounds' ratios, of the second to the first.
        low: The smallest ratio.
        high: The largest ratio.
    """

    metric: str
    concurrency: int
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None


def compare_speed(
    a: Engine,
    b: Engine,
    *,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: Sequence[int],
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
) -> list[Compared]:
    """Measure two engines at each concurrency; a round before the first warms each up.

    Args:
        a: The baseline.
        b: What is compared with it. Nobody else uses either.
        prompt_tokens: Length of the prompts, which must fit with the output into both.
        output_tokens: Tokens to generate.
        concurrency: Requests at once.
        rounds: Rounds of each engine per concurrency.
        progress: Told where it stands.

    Raises:
        optc.errors.RequestError: The requests do not fit in the context.
    """
    params = SamplingParams(max_tokens=output_tokens, temperature=0, ignore_eos=True)
    vocabulary = min(a.spec.vocab_size, b.spec.vocab_size)
    rng = np.random.default_rng(0)
    found: list[Compared] = []
    for index, count in enumerate(concurrency):
        progress("speed", index, len(concurrency))
        pairs: list[tuple[BenchResult, BenchResult]] = []
        for turn in range(-1, rounds):
            prompts = rng.integers(0, vocabulary, (count, prompt_tokens)).tolist()
            done: dict[int, list[RequestMetrics]] = {}
            for engine in (a, b) if turn % 2 == 0 else (b, a):
                done[id(engine)] = serve_round(engine, prompts, params)
            both = (done[id(a)], done[id(b)])
            if turn >= 0:  # the one before has warmed both up
                first, second = (result_of([m], count, prompt_tokens, output_tokens) for m in both)
                pairs.append((first, second))
        found += [_compared(metric, count, pairs) for metric in METRICS]
    progress("speed", len(concurrency), len(concurrency))
    return found


def _compared(
    metric: str, concurrency: int, pairs: Sequence[tuple[BenchResult, BenchResult]]
) -> Compared:
    values = [(_figure(first, metric), _figure(second, metric)) for first, second in pairs]
    known = [(x, y) for x, y in values if x is not None and y is not None]
    if not known:
        return Compared(metric, concurrency, None, None, None, None, None)
    medians = np.median(known, axis=0)
    ratios = np.array([y / x for x, y in known])
    low, high = float(ratios.min()), float(ratios.max())
    ratio = float(np.median(ratios))
    return Compared(metric, concurrency, float(medians[0]), float(medians[1]), ratio, low, high)


def _figure(result: BenchResult, metric: str) -> float | None:
    value: Any = getattr(result, metric)
    found: float | None = value["p50"] if isinstance(value, dict) else value
    return found
