"""Latencies of all requests that ended, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from optc.runtime.metrics.quantiles import Quantiles
from optc.runtime.metrics.request_metrics import RequestMetrics

PERCENTILES = (50, 90, 95, 99)


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


def _milliseconds(quantiles: Quantiles) -> dict[str, float | None]:
    values = {f"p{p}": quantiles.quantile(p / 100) for p in PERCENTILES}
    values["mean"] = quantiles.mean
    return {key: None if value is None else 1000 * value for key, value in values.items()}
