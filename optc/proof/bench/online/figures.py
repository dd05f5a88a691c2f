"""The figures of a load: latencies, throughput, goodput, errors by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.errors import UnavailableError
from optc.proof.bench.online.ask import Answer, Failure
from optc.proof.bench.online.load import Load
from optc.proof.bench.slo import Slo, goodput_of
from optc.proof.bench.summary import cost_of
from optc.runtime.metrics.latencies import Latencies
from optc.runtime.metrics.quantiles import ERROR


class NoAnswerError(UnavailableError):
    """Every request failed.

    Args:
        url: Of the server.
        failures: All of them.
        details: All values of the command, for the JSON object.
    """

    def __init__(self, url: str, failures: Sequence[Failure], details: dict[str, Any]) -> None:
        first = failures[0]
        super().__init__(
            f"all {len(failures)} requests failed; the first one: {first.kind}: {first.message}",
            where=url,
        )
        self.details = details


def figures(
    load: Load, *, slo: Slo | None = None, price_per_hour: float | None = None
) -> dict[str, Any]:
    """One JSON object; docs/bench.md says what its keys mean. Without an answer its latencies are
    null.

    Args:
        load: Of the counted requests.
        slo: For the goodput.
        price_per_hour: Of the machine, in any currency.
    """
    answered = [one for one in load.answers if one.failure is None]
    latencies = Latencies()
    for one in answered:
        latencies.observe(one.times)
    seconds = load.seconds
    tokens_in = sum(one.prompt_tokens or 0 for one in answered)
    tokens_out = sum(one.times.tokens for one in answered)
    times = latencies.to_json()
    del times["queue_ms"]  # clients do not see it
    late = load.lateness.quantile(0.99)
    failed = len(load.answers) - len(answered)
    met = None
    if slo is not None:
        met = goodput_of(slo, [one.times for one in answered], failed, seconds)
    return {
        "requests": len(answered),
        "failed": failed,
        "errors": errors_by_kind(failures_of(load.answers)),
        "seconds": seconds,
        "offered_per_s": load.offered_per_s,
        "requests_per_s": len(answered) / seconds,
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "input_tokens_per_s": tokens_in / seconds,
        "output_tokens_per_s": tokens_out / seconds,
        **times,
        "percentile_error": ERROR,
        "lateness_ms": {"p99": None if late is None else 1e3 * late},
        "goodput": met,
        "cost": cost_of(price_per_hour, tokens_in, tokens_out, seconds) if tokens_out else None,
    }


def failures_of(answers: Sequence[Answer]) -> list[Failure]:
    """Why answers failed, of those that did."""
    return [one.failure for one in answers if one.failure is not None]


def errors_by_kind(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """The number of each kind, most first, with the words of its first failure."""
    first: dict[str, str] = {}
    counts: dict[str, int] = {}
    for one in failures:
        first.setdefault(one.kind, one.message)
        counts[one.kind] = counts.get(one.kind, 0) + 1
    ordered = sorted(counts, key=lambda kind: (-counts[kind], kind))
    return [{"kind": kind, "count": counts[kind], "message": first[kind]} for kind in ordered]


def uncounted(answers: Sequence[Answer]) -> list[str]:
    """A warning where the server did not say how many tokens its answers have."""
    if all(one.counted for one in answers if one.failure is None):
        return []
    return ["the server did not count tokens (stream_options.include_usage): a chunk counts as one"]
