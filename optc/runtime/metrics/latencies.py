"""Latencies of all requests that ended, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from optc.runtime.metrics.quantiles import Quantiles
from optc.runtime.requests.request_metrics import RequestMetrics

PERCENTILES = (50, 90, 95, 99)
#: Bounds of histograms in seconds, from a millisecond to 1,000 s.
BOUNDS = (*(step * 10.0**power for power in range(-3, 3) for step in (1, 2.5, 5)), 1000.0)


@dataclass
class Latencies:
    """Distributions in seconds; percentiles are within `optc.runtime.metrics.quantiles.ERROR`.

    Attributes:
        ttft: Time to first token, of each request that has one.
        tpot: Mean time per output token after the first, of each request with two.
        itl: Inter-token latencies of all tokens; 0 within the tokens that one step gave.
        e2e: From arrival to the end.
        queue: From arrival to the first computed row.
    """

    ttft: Quantiles = field(default_factory=Quantiles)
    tpot: Quantiles = field(default_factory=Quantiles)
    itl: Quantiles = field(default_factory=Quantiles)
    e2e: Quantiles = field(default_factory=Quantiles)
    queue: Quantiles = field(default_factory=Quantiles)

    def observe(self, request: RequestMetrics) -> None:
        """Add a request that has ended."""
        for name in ("ttft", "tpot", "e2e", "queue"):
            seconds: float | None = getattr(request, f"{name}_s")
            if seconds is not None:
                getattr(self, name).add(seconds)
        self.itl.extend(request.itl_s)

    def copy(self) -> Latencies:
        """Distributions of their own that have seen the same."""
        return Latencies(*(getattr(self, f.name).copy() for f in fields(self)))

    def to_json(self) -> dict[str, dict[str, float | None]]:
        """``ttft_ms`` and so on, each with p50, p90, p95, p99 and mean in milliseconds."""
        return {f"{f.name}_ms": _milliseconds(getattr(self, f.name)) for f in fields(self)}

    def histograms(self, bounds: Sequence[float] = BOUNDS) -> dict[str, dict[str, Any]]:
        """``ttft_s`` and so on, each with ``count`` and ``sum`` of its values, which only grow, and
        ``buckets``: pairs of a bound and how many values are at most that. In seconds."""
        found = {}
        for one in fields(self):
            values: Quantiles = getattr(self, one.name)
            found[f"{one.name}_s"] = {
                "count": values.count,
                "sum": values.total,
                "buckets": [[bound, count] for bound, count in values.histogram(bounds)],
            }
        return found


def _milliseconds(quantiles: Quantiles) -> dict[str, float | None]:
    values = {f"p{p}": quantiles.quantile(p / 100) for p in PERCENTILES}
    values["mean"] = quantiles.mean
    return {key: None if value is None else 1000 * value for key, value in values.items()}
