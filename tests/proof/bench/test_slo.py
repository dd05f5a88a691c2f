from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.bench.slo import Slo, parse_slo
from optc.runtime.requests.request_metrics import RequestMetrics


def metrics(*times: float, finished: float | None = None) -> RequestMetrics:
    return RequestMetrics(10.0, token_times_s=list(times), finished_s=finished)


def test_bounds_are_read_in_any_unit() -> None:
    assert parse_slo("ttft=200ms,tpot=50ms") == Slo(0.2, 0.05)
    assert parse_slo(" e2e = 1.5s , tpot=500us") == Slo(None, 0.0005, 1.5)
    assert Slo(0.2).to_json() == {"ttft_ms": 200, "tpot_ms": None, "e2e_ms": None, "itl_ms": None}


@pytest.mark.parametrize("text", ["", "ttft", "ttft=200", "ttfb=1s", "ttft=1s,ttft=2s", "tpot=-1s"])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"--slo: '.*' is no objective \(each of ttft, tpot, e2e, itl"
    ):
        parse_slo(text)


def test_every_bound_must_hold() -> None:
    slo = Slo(ttft=1.0, tpot=0.5, e2e=3.0)
    assert slo.met(metrics(11.0, 11.5, 12.0, finished=13.0))
    assert not slo.met(metrics(11.1, 11.5, finished=12.0))
    assert not slo.met(metrics(10.5, 11.1, finished=12.0))
    assert not slo.met(metrics(10.5, 10.6, finished=13.1))


def test_the_longest_gap_counts() -> None:
    request = metrics(10.5, 10.6, 10.9, 11.0)
    assert Slo(itl=0.31).met(request)
    assert not Slo(itl=0.29).met(request)
    assert Slo(itl=0.0).met(metrics(10.5))


def test_one_token_has_no_tpot_and_none_misses_everything() -> None:
    assert Slo(tpot=1e-9).met(metrics(11.0))
    assert not Slo(tpot=1.0).met(metrics())
