"""An engine's figures in Prometheus' text format
(https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from __future__ import annotations

from collections.abc import Iterator

import optc

#: Counters of `engine.metrics()`, which only grow.
COUNTERS = ("prefix_lookup_tokens", "prefix_hit_tokens", "drafted_tokens", "accepted_tokens")


def prometheus(engine: optc.Engine) -> str:
    """The page that Prometheus scrapes."""
    return "\n".join(_lines(engine)) + "\n"


def _lines(engine: optc.Engine) -> Iterator[str]:
    figures, state = engine.metrics(), engine.health()
    for name, latency in figures.latencies.histograms().items():
        metric = f"optc_{name.removesuffix('_s')}_seconds"
        yield f"# TYPE {metric} histogram"
        for bound, count in latency["buckets"]:
            yield f'{metric}_bucket{{le="{bound}"}} {count}'
        yield f'{metric}_bucket{{le="+Inf"}} {latency["count"]}'
        yield f"{metric}_sum {latency['sum']}"
        yield f"{metric}_count {latency['count']}"
    for name in COUNTERS:
        yield f"# TYPE optc_{name}_total counter"
        yield f"optc_{name}_total {getattr(figures, name)}"
    for name in ("running", "waiting", "step_s"):
        metric = f"optc_{name.replace('_s', '_seconds')}"
        yield f"# TYPE {metric} gauge"
        yield f"{metric} {getattr(state, name)}"
