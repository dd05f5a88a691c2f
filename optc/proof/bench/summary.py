"""The figures of a run, replayed or simulated: latencies, throughput, goodput, use, cost."""

from __future__ import annotations

from typing import Any

from optc.errors import RequestError
from optc.proof.bench.replay import Run
from optc.proof.bench.slo import Slo, goodput_of
from optc.proof.bench.utilization import Instruments
from optc.runtime.metrics.latencies import Latencies
from optc.runtime.metrics.quantiles import ERROR


def summarize(
    run: Run,
    *,
    slo: Slo | None = None,
    price_per_hour: float | None = None,
    instruments: Instruments | None = None,
) -> dict[str, Any]:
    """One JSON object; docs/bench.md says what its keys mean.

    Args:
        run: Of the counted requests.
        slo: For the goodput.
        price_per_hour: Of the machine, in any currency.
        instruments: For MBU and MFU.

    Raises:
        RequestError: No request was served.
    """
    if not run.requests:
        raise RequestError(f"none of {run.failed} requests was served", where="workload")
    latencies, counters, seconds = Latencies(), run.counters, run.seconds
    times = [served.metrics for served in run.requests]
    for one in times:
        latencies.observe(one)
    tokens_in = sum(served.prompt_tokens for served in run.requests)
    tokens_out = sum(served.output_tokens for served in run.requests)
    return {
        "requests": len(run.requests),
        "failed": run.failed,
        "seconds": seconds,
        "offered_per_s": run.offered_per_s,
        "requests_per_s": len(run.requests) / seconds,
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "input_tokens_per_s": tokens_in / seconds,
        "output_tokens_per_s": tokens_out / seconds,
        **latencies.to_json(),
        "percentile_error": ERROR,
        "lateness_ms": {"p99": _milliseconds(run.lateness.quantile(0.99))},
        "goodput": None if slo is None else goodput_of(slo, times, run.failed, seconds),
        "acceptance_rate": counters.acceptance_rate,
        "tokens_per_pass": counters.tokens_per_pass,
        "prefix_hit_rate": counters.prefix_hit_rate,
        "kv_use": {"mean": counters.kv_use_mean, "peak": counters.kv_use_peak},
        "preemptions": counters.preemptions,
        "steps": counters.steps,
        "busy": counters.step_s / seconds,
        **_utilization(run, instruments),
        "cost": cost_of(price_per_hour, tokens_in, tokens_out, seconds),
    }


def _utilization(run: Run, instruments: Instruments | None) -> dict[str, float | None]:
    """MBU and MFU while the engine worked; idle time is not counted."""
    busy_s = run.counters.step_s
    if instruments is None or not busy_s:
        return {"mbu": None, "mfu": None}
    costs, ceilings = instruments.costs, instruments.meter.ceilings()
    work = run.counters.work.factors()
    peak = ceilings.get(costs.peak)
    return {
        "mbu": costs.bytes_of(work) / busy_s / ceilings["read"].best,
        "mfu": None if peak is None else costs.ops_of(work) / busy_s / peak.best,
    }


def cost_of(
    price_per_hour: float | None, tokens_in: int, tokens_out: int, seconds: float
) -> dict[str, float] | None:
    """Price of the run's time, for a million tokens."""
    if price_per_hour is None:
        return None
    price = price_per_hour * seconds / 3600
    return {
        "price_per_hour": price_per_hour,
        "per_million_output_tokens": 1e6 * price / tokens_out,
        "per_million_tokens": 1e6 * price / (tokens_in + tokens_out),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
