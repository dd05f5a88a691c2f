"""Prefill and decode throughput and latency percentiles through the public engine.

Every round submits ``concurrency`` requests at once, each with random tokens of its own, greedy
and of fixed length. Prefill is all prompt tokens over the time until the last request has its
first token. Decode is counted while all requests decode: from the last first token to the first
last one. Throughputs are medians over rounds, latencies percentiles over all requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from optc.errors import InputError
from optc.proof.bench.disk_reads import DiskReads
from optc.proof.bench.result import BenchResult
from optc.proof.bench.utilization import Instruments, with_utilization
from optc.proof.roofline.ceilings import sample
from optc.runtime.engine import Engine
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.system.progress import Progress, no_progress

ROUNDS = 3
PERCENTILES = (50, 90, 99)


def fit(prompt_tokens: int, output_tokens: int, max_context: int) -> tuple[int, int]:
    """Prompt and output lengths, the prompt shortened so that both fit in the context.

    Raises:
        InputError: A length is not positive, or the output alone fills the context.
    """
    if prompt_tokens < 1 or output_tokens < 1:
        raise InputError("prompt and output need at least one token each", where="bench")
    if output_tokens >= max_context:
        raise InputError(
            f"{output_tokens} output tokens leave no room for a prompt",
            where="bench",
            hint=f"the context holds {max_context} tokens, prompt and output together",
        )
    return min(prompt_tokens, max_context - output_tokens), output_tokens


def bench(
    engine: Engine,
    *,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: Sequence[int],
    rounds: int = ROUNDS,
    instruments: Instruments | None = None,
    progress: Progress = no_progress,
) -> list[BenchResult]:
    """Measure the engine at each concurrency; one round before the first warms it up.

    Args:
        engine: A loaded engine that nobody else uses.
        prompt_tokens: Length of the prompts, which must fit with the output (`fit`).
        output_tokens: Tokens to generate.
        concurrency: Requests at once, one result for each.
        rounds: Rounds per concurrency.
        instruments: Ceilings, which are measured before every round, and costs for MBU and MFU.
        progress: Told where it stands.

    Raises:
        InputError: A concurrency or ``rounds`` is not positive.
        optc.errors.RequestError: The requests do not fit in the context.
        DisturbedError: More was measured than the machine can do.
    """
    if rounds < 1 or any(count < 1 for count in concurrency):
        raise InputError("concurrency and rounds are at least 1", where="bench")
    rng = np.random.default_rng(0)
    params = SamplingParams(max_tokens=output_tokens, temperature=0, ignore_eos=True)
    _round(engine, rng, 1, prompt_tokens, params)
    results = []
    for index, count in enumerate(concurrency):
        progress("bench", index, len(concurrency))
        outputs, reads = [], DiskReads()
        for _ in range(rounds):
            if instruments is not None:
                sample(instruments.meter)
            with reads:
                outputs.append(_round(engine, rng, count, prompt_tokens, params))
        result = result_of(outputs, count, prompt_tokens, output_tokens)
        results.append(reads.noted(result, rounds * count * output_tokens))
    progress("bench", len(concurrency), len(concurrency))
    return results if instruments is None else with_utilization(results, engine.spec, instruments)


def _round(
    engine: Engine,
    rng: np.random.Generator,
    count: int,
    prompt_tokens: int,
    params: SamplingParams,
) -> list[RequestMetrics]:
    prompts = rng.integers(0, engine.spec.vocab_size, (count, prompt_tokens)).tolist()
    return serve_round(engine, prompts, params)


def serve_round(
    engine: Engine, prompts: list[list[int]], params: SamplingParams
) -> list[RequestMetrics]:
    """Serve all prompts at once; the times of each request.

    Raises:
        optc.errors.RequestError: One could not be served.
    """
    outputs: list[RequestOutput] = engine.generate(prompts, params)
    for output in outputs:
        output.raise_for_error()
    return [output.metrics for output in outputs]


def result_of(
    rounds: list[list[RequestMetrics]], count: int, prompt_tokens: int, output_tokens: int
) -> BenchResult:
    """The figures of rounds of ``count`` requests each."""
    prefill = [count * prompt_tokens / _prefill_s(metrics) for metrics in rounds]
    decode = [rate for metrics in rounds if (rate := _decode_rate(metrics)) is not None]
    every = list(chain.from_iterable(rounds))
    return BenchResult(
        count,
        prompt_tokens,
        output_tokens,
        float(np.median(prefill)),
        float(np.median(decode)) if decode else None,
        _percentiles(m.ttft_s for m in every),
        _percentiles(m.tpot_s for m in every),
    )


def _prefill_s(metrics: list[RequestMetrics]) -> float:
    return max(m.token_times_s[0] for m in metrics) - min(m.arrived_s for m in metrics)


def _decode_rate(metrics: list[RequestMetrics]) -> float | None:
    """Tokens/s while all requests decode; over the whole decode if there is no such time."""
    times = np.concatenate([m.token_times_s for m in metrics])
    began = max(m.token_times_s[0] for m in metrics)
    ended = min(m.token_times_s[-1] for m in metrics)
    if ended <= began:
        began, ended = min(m.token_times_s[0] for m in metrics), float(times.max())
    if ended <= began:
        return None
    inside = (times > began) & (times <= ended)
    return float(inside.sum() / (ended - began))


def _percentiles(seconds: Iterable[float | None]) -> dict[str, float | None]:
    known = [1000 * s for s in seconds if s is not None]
    values = np.percentile(known, PERCENTILES).tolist() if known else [None] * len(PERCENTILES)
    return {f"p{p}": value for p, value in zip(PERCENTILES, values, strict=True)}
