from __future__ import annotations

import pytest

from optc.runtime.metrics import RequestMetrics


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
