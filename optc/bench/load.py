"""Throughput and latencies of an engine at given concurrencies.

A round submits ``concurrency`` requests at once, each with its own random prompt, and lets each
generate the same number of tokens. Prefill is the rate of prompt tokens until the last request
has its first token; decode is the rate of tokens while all of them decode, from the last first
token to the first end, so that neither ramp is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optc.errors import InputError
from optc.progress import Progress, no_progress
from optc.runtime.params import SamplingParams

if TYPE_CHECKING:
    from optc.runtime.engine import Engine
    from optc.runtime.outputs import RequestOutput

#: Rounds per concurrency whose median counts; one more before them is not counted.
ROUNDS = 3
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class LoadResult:
    """Figures at one concurrency: medians over rounds, percentiles over all requests.

    Attributes:
        concurrency: Requests at once.
        prompt_tokens: Length of each prompt.
        output_tokens: Tokens that each request generates.
        prefill_tokens_per_s: Prompt tokens of all requests together.
        decode_tokens_per_s: Tokens of all requests together.
        ttft_ms: Median time to first token.
        tpot_ms: Time per output token after the first, by percentile: ``p50``, ``p90``, ``p99``.
    """

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    ttft_ms: float
    tpot_ms: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The object in ``--json`` output; ``mbu`` and ``mfu`` need measured peaks and are null."""
        return {**vars(self), "mbu": None, "mfu": None}


def measure_load(
    engine: Engine,
    *,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: Sequence[int],
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
) -> list[LoadResult]:
    """Measure an engine at each concurrency in turn.

    Args:
        engine: A loaded engine that serves nobody else.
        prompt_tokens: Length of each prompt, at least 1.
        output_tokens: Tokens that each request generates, at least 2.
        concurrency: How many requests at once.
        rounds: Counted rounds of each concurrency.
        progress: Told which round is running.

    Raises:
        InputError: The lengths do not fit the context, or the engine takes fewer sequences.
        RequestError: The KV memory is too small for a request.
    """
    _check(engine, prompt_tokens, output_tokens, concurrency)
    rng = np.random.default_rng(0)
    results = []
    for count in concurrency:
        taken = []
        for number in range(rounds + 1):
            progress(f"{count} at once", number, rounds + 1)
            prompts = rng.integers(0, engine.spec.vocab_size, (count, prompt_tokens))
            taken.append(_round(engine, prompts.tolist(), output_tokens))
        results.append(_summarize(taken[1:], count, prompt_tokens, output_tokens))
    return results


def _check(
    engine: Engine, prompt_tokens: int, output_tokens: int, concurrency: Sequence[int]
) -> None:
    length = prompt_tokens + output_tokens
    if prompt_tokens < 1 or output_tokens < 2 or min(concurrency, default=0) < 1:
        raise InputError(
            "prompts need a token, outputs two, and at least one request must run", where="bench"
        )
    if length > engine.max_context:
        raise InputError(
            f"{prompt_tokens} prompt tokens and {output_tokens} new ones exceed the context of "
            f"{engine.max_context}",
            where="bench",
        )
    if max(concurrency) > engine.spec.max_sequences:
        raise InputError(
            f"{max(concurrency)} requests at once, but the engine takes "
            f"{engine.spec.max_sequences} sequences",
            where="bench",
        )


def _round(
    engine: Engine, prompts: list[list[int]], output_tokens: int
) -> tuple[RequestOutput, ...]:
    params = SamplingParams(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
    return tuple(output.raise_for_error() for output in engine.generate(prompts, params))


def _summarize(
    rounds: Sequence[tuple[RequestOutput, ...]], count: int, prompt_tokens: int, output_tokens: int
) -> LoadResult:
    outputs = [output for taken in rounds for output in taken]
    ttft = [o.metrics.ttft_s for o in outputs if o.metrics.ttft_s is not None]
    tpot = [o.metrics.tpot_s for o in outputs if o.metrics.tpot_s is not None]
    return LoadResult(
        concurrency=count,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        prefill_tokens_per_s=float(np.median([_prefill_rate(taken) for taken in rounds])),
        decode_tokens_per_s=float(np.median([_decode_rate(taken) for taken in rounds])),
        ttft_ms=float(np.median(ttft)) * 1e3,
        tpot_ms={f"p{p}": float(np.percentile(tpot, p)) * 1e3 for p in PERCENTILES},
    )


def _prefill_rate(outputs: Sequence[RequestOutput]) -> float:
    """Prompt tokens per second until the last request has its first token."""
    begin = min(output.metrics.arrived_s for output in outputs)
    end = max(output.metrics.token_times_s[0] for output in outputs)
    return sum(output.prompt_tokens for output in outputs) / (end - begin)


def _decode_rate(outputs: Sequence[RequestOutput]) -> float:
    """Tokens per second while every request decodes.

    Where prefills take so long that the first request ends before the last one begins, the whole
    time from the first token to the last is what counts.
    """
    times = [output.metrics.token_times_s for output in outputs]
    begin, end = max(t[0] for t in times), min(t[-1] for t in times)
    if begin >= end:
        begin, end = min(t[0] for t in times), max(t[-1] for t in times)
    return sum(begin < moment <= end for t in times for moment in t) / (end - begin)
