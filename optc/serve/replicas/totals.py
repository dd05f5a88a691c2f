"""`Totals`: the counters of several replicas in one, those that are gone included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.latencies import Latencies
from optc.serve.replicas.wire import Report

#: Counters that only grow.
_COUNTED = (
    "steps",
    "step_s",
    "prompt_tokens",
    "output_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "forced_tokens",
    "forked",
    "prefix_lookup_tokens",
    "prefix_hit_tokens",
    "preemptions",
    "restored_blocks",
    "kv_use_sum",
)
#: What replicas hold now.
_HELD = ("running", "waiting", "spilled_blocks")
#: The same, by KV group.
_BLOCKS = ("free_blocks", "cached_blocks", "total_blocks")


class Totals:
    """Adds the latest reports up. A replica that is gone holds nothing any more, and its counts
    stay: a counter that falls would be taken for one that began anew."""

    def __init__(self) -> None:
        self._latest: dict[str, Report] = {}
        self._gone = EngineMetrics()

    @property
    def reports(self) -> Mapping[str, Report]:
        """The latest of each replica that there is."""
        return self._latest

    def heard(self, reports: list[Report]) -> None:
        """These replicas are there, with what they report; all others are gone."""
        there = {one.replica for one in reports}
        for name in self._latest.keys() - there:
            self._gone = _counted(self._gone, self._latest.pop(name).metrics)
        self._latest.update({one.replica: one for one in reports})

    def metrics(self, latencies: Latencies) -> EngineMetrics:
        """All together, with these latencies. What the steps computed (``work``) is left out."""
        found = self._gone
        for one in self._latest.values():
            found = _held(_counted(found, one.metrics), one.metrics)
        return replace(found, latencies=latencies)


def _counted(one: EngineMetrics, other: EngineMetrics) -> EngineMetrics:
    """The counters of both, and what the first holds."""
    sums: dict[str, Any] = {n: getattr(one, n) + getattr(other, n) for n in _COUNTED}
    finished = dict(one.finished)
    for reason, count in other.finished.items():
        finished[reason] = finished.get(reason, 0) + count
    peak = max(one.kv_use_peak, other.kv_use_peak)
    return replace(one, **sums, finished=finished, kv_use_peak=peak)


def _held(one: EngineMetrics, other: EngineMetrics) -> EngineMetrics:
    """The counters of the first, and what both hold."""
    sums: dict[str, Any] = {n: getattr(one, n) + getattr(other, n) for n in _HELD}
    sums |= {n: _added(getattr(one, n), getattr(other, n)) for n in _BLOCKS}
    return replace(one, **sums)


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True)) if one else other
