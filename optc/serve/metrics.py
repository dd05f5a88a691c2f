"""Metrics for Prometheus: the engines' counters under vLLM's names, and requests of HTTP.

The names behind the prefix are those of vLLM, so that boards and routers that read its metrics read
these. No label comes from a request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.latencies import BOUNDS
from optc.serve.models import ModelTable
from optc.serve.objectives import Objectives
from optc.serve.published import Published

_PREFIX = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_LABELS = ("model_name", "engine")
#: Gauges: name, what it says.
_GAUGES = {
    "num_requests_running": "Texts that are computed now.",
    "num_requests_waiting": "Texts in the queue now.",
    "kv_cache_usage_perc": "Share of the KV blocks that requests hold, from 0 to 1.",
}
#: Counters, by the names of `EngineMetrics`.
_COUNTERS = {
    "prompt_tokens": ("prompt_tokens", "Rows computed for tokens of prompts."),
    "output_tokens": ("generation_tokens", "Tokens drawn."),
    "preemptions": ("num_preemptions", "Requests whose KV blocks were taken."),
    "prefix_lookup_tokens": ("prefix_cache_queries", "Tokens looked up in the prefix cache."),
    "prefix_hit_tokens": ("prefix_cache_hits", "Those of them that it had."),
    "answer_lookups": ("answer_cache_queries", "Requests looked up in the answer cache."),
    "answer_hits": ("answer_cache_hits", "Those of them that it answered."),
    "drafted_tokens": ("spec_decode_num_draft_tokens", "Tokens drafted and verified."),
    "accepted_tokens": ("spec_decode_num_accepted_tokens", "Those that the model drew too."),
    "steps": ("engine_steps", "Calls of the executable."),
    "step_s": ("engine_step_seconds", "Time inside the executable."),
}
#: Counters of what ended, where there are objectives.
_OBJECTIVES = {
    "requests_within_objectives": "Texts that met --ttft-ms and --itl-ms.",
    "requests_with_objectives": "Texts that could have.",
}
#: Histograms in seconds, by the names of `Latencies`.
_HISTOGRAMS = {
    "ttft_s": ("time_to_first_token_seconds", "From arrival to the first token."),
    "itl_s": ("inter_token_latency_seconds", "Between two tokens of a text."),
    "tpot_s": ("request_time_per_output_token_seconds", "Mean of a text after its first token."),
    "e2e_s": ("e2e_request_latency_seconds", "From arrival to the end."),
    "queue_s": ("request_queue_time_seconds", "From arrival to the first computed row."),
}
#: Of engines that sleep, by ``sleep_after``: name, what it says.
SLEEP = ("engine_sleep_state", "1 for the state that the engine is in.")
#: Of adapters: name, what it says, labels. The value is when it was asked.
ADAPTERS = (
    "lora_requests_info",
    "Adapters that are loaded, and how many fit.",
    ("max_lora", "running_lora_adapters", "waiting_lora_adapters"),
)
#: Of streams: name, what it says.
PUBLISHED = (
    "time_to_publish_seconds",
    "From a request to the first text or call of its stream, thoughts left out.",
)

#: Of models of named tensors: name, what it says.
CALLS = ("tensor_call_seconds", "From the arrival of a call of named tensors to its end.")
WAITING = ("num_tensor_calls_waiting", "Calls of named tensors in the queue now.")


class EngineCollector(Collector):
    """Reads the counters of all engines when it is asked.

    Args:
        models: Of the server.
        prefix: Of all names.
        objectives: Of answers; without any their counters are not there.
        published: Times to the first bit that may be shown.
    """

    def __init__(
        self,
        models: ModelTable,
        prefix: str,
        objectives: Objectives | None = None,
        published: Published | None = None,
    ) -> None:
        self._models = models
        self._objectives = objectives or Objectives()
        self._published = published or Published()
        self._prefix = prefix

    def collect(self) -> Iterable[Metric]:
        """All metrics of now."""
        engines = list(self._models.engines.items())
        found = [(name, engine, engine.metrics()) for name, engine in engines]
        yield from self._tensors()
        yield from self._gauges(found)
        yield from self._counters(found)
        yield from self._histograms(found)
        yield self._shown(found)
        yield self._asleep(found)
        if self._objectives.stated:
            yield from self._within(found)
        yield self._cache(found)
        yield self._adapters(found)

    def _name(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _tensors(self) -> Iterator[Metric]:
        """Calls of models of named tensors, if there are any."""
        models = list(self._models.tensors.values())
        if not models:
            return
        name, text = CALLS
        calls = HistogramMetricFamily(self._name(name), text, labels=_LABELS)
        waiting = GaugeMetricFamily(self._name(WAITING[0]), WAITING[1], labels=_LABELS)
        for one in models:
            times = one.queue.times
            buckets = _buckets(times.histogram(BOUNDS), times.count)
            calls.add_metric((one.name, "0"), buckets, times.total)
            waiting.add_metric((one.name, "0"), one.queue.waiting)
        yield from (calls, waiting)

    def _gauges(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(self._name(name), text, labels=_LABELS)
            for name, text in _GAUGES.items()
        }
        for name, _, one in found:
            values = (one.running, one.waiting, kv_use(one))
            for family, value in zip(families.values(), values, strict=True):
                family.add_metric((name, "0"), value)
        yield from families.values()

    def _counters(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Iterator[Metric]:
        for field, (name, text) in _COUNTERS.items():
            family = CounterMetricFamily(self._name(name), text, labels=_LABELS)
            for model, _, one in found:
                family.add_metric((model, "0"), getattr(one, field))
            yield family
        labels = (*_LABELS, "finished_reason")
        ended = CounterMetricFamily(
            self._name("request_success"), "Texts by what ended them.", labels=labels
        )
        for model, _, one in found:
            for reason, count in one.finished.items():
                ended.add_metric((model, "0", reason), count)
        yield ended

    def _within(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Iterator[Metric]:
        families = [
            CounterMetricFamily(self._name(name), text, labels=_LABELS)
            for name, text in _OBJECTIVES.items()
        ]
        for model, engine, _ in found:
            for family, value in zip(families, self._objectives.counted(engine), strict=True):
                family.add_metric((model, "0"), value)
        yield from families

    def _histograms(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Iterator[Metric]:
        values = [(model, one.latencies.histograms()) for model, _, one in found]
        for field, (name, text) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(self._name(name), text, labels=_LABELS)
            for model, histograms in values:
                one: dict[str, Any] = histograms[field]
                family.add_metric((model, "0"), _buckets(one["buckets"], one["count"]), one["sum"])
            yield family

    def _asleep(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Metric:
        labels = (*_LABELS, "sleep_state")
        family = GaugeMetricFamily(self._name(SLEEP[0]), SLEEP[1], labels=labels)
        for model, engine, _ in found:
            asleep = engine.health().asleep
            family.add_metric((model, "0", "awake"), not asleep)
            family.add_metric((model, "0", "discard_all"), asleep)
        return family

    def _shown(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Metric:
        name, text = PUBLISHED
        family = HistogramMetricFamily(self._name(name), text, labels=_LABELS)
        for model, engine, _ in found:
            times = self._published.times(engine)
            buckets = _buckets(times.histogram(BOUNDS), times.count)
            family.add_metric((model, "0"), buckets, times.total)
        return family

    def _cache(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Metric:
        info = InfoMetricFamily(
            self._name("cache_config"), "Blocks of keys and values.", labels=_LABELS
        )
        for model, engine, one in found:
            plan = engine.kv_plan
            values = {"block_size": str(plan.block_size), "num_gpu_blocks": str(_blocks(one))}
            info.add_metric((model, "0"), values)
        return info

    def _adapters(self, found: list[tuple[str, Engine, EngineMetrics]]) -> Metric:
        """Adapters that requests may name, as the Gateway API's endpoint picker reads them. All
        that are loaded run: none waits for its weights."""
        family = GaugeMetricFamily(self._name(ADAPTERS[0]), ADAPTERS[1], labels=ADAPTERS[2])
        for _, engine, _ in found:
            if engine.spec.adapters is not None:
                most, names = engine.spec.adapters.max, ",".join(engine.adapters)
                family.add_metric((str(most), names, ""), time.time())
        return family


class HTTPCounters:
    """Counts requests by route and status.

    Args:
        registry: Where they are registered.
        prefix: Of their name.
    """

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        self._requests = Counter(
            f"{prefix}:http_requests",
            "Answers by route and status.",
            ("route", "method", "status"),
            registry=registry,
        )

    def count(self, route: str, method: str, status: int) -> None:
        """Add a request."""
        known = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self._requests.labels(route, known, str(status)).inc()


def _buckets(pairs: Iterable[Sequence[float]], count: int) -> list[tuple[str, float]]:
    """Cumulative buckets as Prometheus has them, from pairs of a bound and a count."""
    found = [(f"{bound:g}", float(below)) for bound, below in pairs]
    return [*found, ("+Inf", float(count))]


def check_prefix(prefix: str) -> None:
    """Refuse what is no beginning of a metric's name.

    Raises:
        InputError: It is none.
    """
    if not _PREFIX.fullmatch(prefix):
        raise InputError(
            f"{prefix!r} is no beginning of a metric's name",
            where="--metrics-prefix",
            hint="letters, digits and underscores, such as optc or vllm",
        )


def kv_use(one: EngineMetrics) -> float:
    """Share of the blocks of the fullest group that requests hold."""
    pairs = zip(one.free_blocks, one.total_blocks, strict=False)
    return max((1 - free / total for free, total in pairs if total), default=0.0)


def _blocks(one: EngineMetrics) -> int:
    return max(one.total_blocks, default=0)
