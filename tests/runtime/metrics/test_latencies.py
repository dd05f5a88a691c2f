from __future__ import annotations

from dataclasses import fields

import pytest

from optc.runtime.metrics.latencies import BOUNDS, Latencies
from optc.runtime.requests.request_metrics import RequestMetrics


def ended(*times: float, queue: float | None = 0.25) -> RequestMetrics:
    """A request of time 1, whose tokens came at ``times``, that ended half a second later."""
    scheduled = None if queue is None else 1.0 + queue
    metrics = RequestMetrics(1.0, scheduled_s=scheduled, token_times_s=list(times))
    metrics.finished_s = (times or (1.0,))[-1] + 0.5
    return metrics


def test_each_figure_goes_to_its_own_distribution() -> None:
    latencies = Latencies()
    latencies.observe(ended(3.0, 4.0, 7.0))
    counts = {name: getattr(latencies, name).count for name in ("ttft", "tpot", "itl", "e2e")}
    assert counts == {"ttft": 1, "tpot": 1, "itl": 2, "e2e": 1}
    means = {key: value["mean"] for key, value in latencies.to_json().items()}
    assert means == {
        "ttft_ms": pytest.approx(2000),
        "tpot_ms": pytest.approx(2000),
        "itl_ms": pytest.approx(2000),
        "e2e_ms": pytest.approx(6500),
        "queue_ms": pytest.approx(250),
    }


def test_what_a_request_does_not_have_is_not_counted() -> None:
    latencies = Latencies()
    latencies.observe(ended(queue=None))
    counts = [getattr(latencies, name).count for name in ("ttft", "tpot", "itl", "e2e", "queue")]
    assert counts == [0, 0, 0, 1, 0]
    nothing = dict.fromkeys(("p50", "p90", "p95", "p99", "mean"))
    assert latencies.to_json()["ttft_ms"] == nothing


def test_percentiles_are_in_milliseconds() -> None:
    latencies = Latencies()
    seconds = [1.01**step for step in range(1, 1001)]
    for each in seconds:
        latencies.observe(ended(1 + each))
    found = latencies.to_json()["ttft_ms"]
    wanted = {f"p{p}": 1000 * seconds[10 * p - 1] for p in (50, 90, 95, 99)}
    assert found == pytest.approx(wanted | {"mean": sum(seconds)}, rel=0.006)


def test_a_copy_sees_nothing_that_comes_later() -> None:
    latencies = Latencies()
    latencies.observe(ended(3.0))
    copy = latencies.copy()
    latencies.observe(ended(9.0))
    assert copy.ttft.count == 1
    assert copy.to_json()["ttft_ms"]["mean"] == pytest.approx(2000)


def test_histograms_have_count_sum_and_buckets_in_seconds() -> None:
    latencies = Latencies()
    for seconds in (0.02, 0.3, 0.3, 2000.0):
        latencies.observe(ended(1 + seconds))
    found = latencies.histograms()
    assert found.keys() == {f"{f.name}_s" for f in fields(Latencies)}
    ttft = found["ttft_s"]
    assert (ttft["count"], ttft["sum"]) == (4, pytest.approx(2000.62))
    assert [bound for bound, _ in ttft["buckets"]] == list(BOUNDS)
    assert dict(ttft["buckets"]) | {0.01: 0, 0.025: 1, 0.25: 1, 0.5: 3, 1e3: 3} == dict(
        ttft["buckets"]
    )
    assert found["tpot_s"]["count"] == 0
    assert BOUNDS[:3] == (0.001, 0.0025, 0.005)
    assert BOUNDS[-1] == 1000


def test_histograms_only_grow() -> None:
    latencies = Latencies()
    before = latencies.histograms()
    for step in range(50):
        latencies.observe(ended(1 + 1.3**step / 1000, 3 + 1.3**step))
        now = latencies.histograms()
        for name, histogram in now.items():
            assert histogram["count"] >= before[name]["count"]
            assert histogram["sum"] >= before[name]["sum"]
            pairs = zip(before[name]["buckets"], histogram["buckets"], strict=True)
            assert all(one[1] <= other[1] <= histogram["count"] for one, other in pairs)
        before = now
