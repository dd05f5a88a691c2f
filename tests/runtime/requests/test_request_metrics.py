from __future__ import annotations

import json

from optc.runtime.requests.request_metrics import RequestMetrics


def test_latencies_are_json_in_milliseconds() -> None:
    metrics = RequestMetrics(1.0, 1.25, [1.5, 1.75, 2.5], 3.0, preemptions=1, cached_tokens=7)
    assert json.loads(json.dumps(metrics.to_json())) == {
        "queue_ms": 250,
        "ttft_ms": 500,
        "tpot_ms": 500,
        "e2e_ms": 2000,
        "itl_ms": [250, 750],
        "preemptions": 1,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "forced_tokens": 0,
        "cached_tokens": 7,
    }


def test_what_has_not_happened_is_null() -> None:
    value = RequestMetrics(1.0).to_json()
    assert [value[f"{name}_ms"] for name in ("queue", "ttft", "tpot", "e2e")] == [None] * 4
    assert value["itl_ms"] == []


def test_metrics_have_a_short_repr() -> None:
    metrics = RequestMetrics(1.0, 1.25, [1.5, 1.75, 2.5], 3.0)
    assert repr(metrics) == "<optc.RequestMetrics 3 tokens, queue 250 ms, TTFT 500 ms, TPOT 500 ms>"
    assert repr(RequestMetrics(1.0)) == "<optc.RequestMetrics 0 tokens>"
