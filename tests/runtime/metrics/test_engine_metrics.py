from __future__ import annotations

import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest

from optc.runtime.engine import Engine
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, toy_spec


def test_latencies_follow_from_the_times() -> None:
    metrics = RequestMetrics(10.0, scheduled_s=10.5, token_times_s=[11.0, 11.25, 12.0])
    metrics.finished_s = 12.5
    assert metrics.queue_s == 0.5
    assert metrics.ttft_s == 1.0
    assert metrics.tpot_s == pytest.approx(0.5)
    assert metrics.itl_s == (0.25, 0.75)
    assert metrics.e2e_s == 2.5


def test_what_has_not_happened_is_none() -> None:
    metrics = RequestMetrics(10.0)
    assert (metrics.queue_s, metrics.ttft_s, metrics.tpot_s, metrics.e2e_s) == (None,) * 4
    assert metrics.itl_s == ()
    metrics.token_times_s.append(11.0)
    assert metrics.tpot_s is None


def test_rates_follow_from_counters() -> None:
    metrics = EngineMetrics(steps=4, output_tokens=30, drafted_tokens=20, accepted_tokens=15)
    assert metrics.acceptance_rate == 0.75
    assert metrics.tokens_per_pass == 2
    assert EngineMetrics().acceptance_rate is EngineMetrics().tokens_per_pass is None


def test_the_core_counts_work_use_and_latencies() -> None:
    times = itertools.count()
    core = Core(
        ToyExecutable(toy_spec()),
        KVPlan(4, (10,), 0, 64),
        ServeSettings(token_budget=16),
        clock=lambda: next(times) / 64,
    )
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    kept = core.add(CompletionInput(np.arange(5, dtype=np.int32), params, seed=0))
    cancelled = core.add(CompletionInput(np.arange(6, dtype=np.int32), params, seed=0))
    core.step()
    core.cancel(cancelled)
    before = core.metrics()
    while core.has_work:
        core.step()
    metrics = core.metrics()
    # 5 and 6 rows, then twice one row of the first; blocks of 4: 2 + 2, 2, 2.
    assert before.work == StepWorkload((0,), 1, 11, 2, [11], [15 + 21], {11: 1}, {2: 1})
    pairs, by_rows = [15 + 21 + 6 + 7], {11: 1, 1: 2}
    assert metrics.work == StepWorkload((0,), 3, 13, 4, [24], pairs, by_rows, {2: 1, 1: 2})
    assert metrics.kv_use_peak == pytest.approx(0.4)
    assert metrics.kv_use_mean == pytest.approx((0.4 + 0.2 + 0.2) / 3)
    assert metrics.latencies.ttft.count == metrics.latencies.e2e.count == 1
    assert metrics.latencies.itl.count == 2
    assert before.latencies.ttft.count == 0
    found = metrics.latencies.to_json()
    assert set(found) == {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms"}
    assert set(found["ttft_ms"]) == {"p50", "p90", "p95", "p99", "mean"}
    assert found["itl_ms"]["p50"] == pytest.approx(1000 * min(kept.metrics.itl_s), rel=0.005)


def test_the_counters_are_json() -> None:
    with Engine(lambda: ToyExecutable(toy_spec((0, 6)))) as engine:
        engine.generate([[1, 2]], SamplingParams(max_tokens=3))
        metrics = engine.metrics()
    as_json = json.loads(json.dumps(metrics.to_json()))
    assert as_json["finished"] == {"length": 1}
    assert as_json["work"]["rows"] == metrics.work.rows == 4
    assert as_json["latencies"]["ttft_ms"]["p50"] > 0
    assert as_json["total_blocks"] == list(metrics.total_blocks)
    assert as_json["kv_use_mean"] == metrics.kv_use_mean
    plain = json.loads(json.dumps(asdict(metrics)))
    assert plain["finished"] == {"length": 1}
    assert plain["latencies"]["itl"]["count"] == 2


def test_it_is_short_to_look_at() -> None:
    metrics = EngineMetrics(steps=3, prompt_tokens=5, output_tokens=7, running=1)
    assert repr(metrics) == (
        "<optc.EngineMetrics 3 steps, 5 prompt tokens, 7 new ones, 1 running, 0 waiting>"
    )


def test_a_notebook_shows_latencies_and_counters() -> None:
    shown = EngineMetrics(steps=4, output_tokens=30)._repr_html_()
    latencies, counters = shown.split("<table")[1:]
    assert "ttft" in latencies
    assert "output_tokens" not in latencies
    assert "output_tokens" in counters
    assert "30" in counters
    assert "ttft" not in counters
