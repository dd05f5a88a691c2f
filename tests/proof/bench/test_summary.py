"""The figures of a run, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from optc.errors import RequestError
from optc.proof.bench.replay import Run, Served
from optc.proof.bench.slo import ObjectivesError, Slo, shortfall
from optc.proof.bench.summary import summarize
from optc.proof.bench.utilization import Instruments
from optc.proof.roofline.costs import StepCosts
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.requests.request_metrics import RequestMetrics
from tests.proof.bench.fakes import FakeMeter


def served(first_s: float, gap_s: float, tokens: int = 3) -> Served:
    """A request that arrived at 0 and has a token every ``gap_s`` after its first."""
    metrics = RequestMetrics(arrived_s=0.0)
    metrics.token_times_s.extend(first_s + gap_s * n for n in range(tokens))
    metrics.finished_s = metrics.token_times_s[-1]
    return Served(metrics, 10, tokens)


def run(*requests: Served, failed: int = 0, **counters: Any) -> Run:
    return Run(list(requests), failed, replace(EngineMetrics(), **counters), 2.0, 1.5)


def test_rates_and_latencies() -> None:
    found = summarize(run(served(0.1, 0.01), served(0.3, 0.01, 5), failed=1))
    assert (found["requests"], found["failed"], found["seconds"]) == (2, 1, 2.0)
    assert (found["offered_per_s"], found["requests_per_s"]) == (1.5, 1.0)
    assert (found["input_tokens"], found["output_tokens"]) == (20, 8)
    assert (found["input_tokens_per_s"], found["output_tokens_per_s"]) == (10.0, 4.0)
    assert found["ttft_ms"]["mean"] == pytest.approx(200)
    assert found["tpot_ms"]["mean"] == pytest.approx(10)
    assert found["e2e_ms"]["mean"] == pytest.approx((120 + 340) / 2)
    assert (found["goodput"], found["cost"], found["mbu"], found["mfu"]) == (None,) * 4


def test_goodput_counts_failed_requests_as_late() -> None:
    slo = Slo(ttft=0.2)
    found = summarize(run(served(0.1, 0.01), served(0.3, 0.01), failed=2), slo=slo)["goodput"]
    assert found == {"slo": slo.to_json(), "share": 0.25, "requests_per_s": 0.5}


def test_cost_is_the_price_of_the_time() -> None:
    requests = [served(0.1, 0.01, 5)] * 2  # 20 tokens in, 10 out, in two seconds
    found = summarize(run(*requests), price_per_hour=3600.0)["cost"]
    assert found == {
        "price_per_hour": 3600.0,
        "per_million_output_tokens": pytest.approx(2e6 / 10),
        "per_million_tokens": pytest.approx(2e6 / 30),
    }


def test_an_engine_that_did_nothing_has_no_utilization() -> None:
    costs = SimpleNamespace(peak="int8", bytes_of=lambda _: 2.5e5, ops_of=lambda _: 5e5)
    instruments = Instruments(cast(StepCosts, costs), FakeMeter())  # 1 MB/s, 2 Mop/s
    idle = summarize(run(served(0.1, 0.01), step_s=0.0), instruments=instruments)
    assert (idle["mbu"], idle["mfu"], idle["busy"]) == (None, None, 0.0)
    busy = summarize(run(served(0.1, 0.01), step_s=0.5), instruments=instruments)
    assert (busy["mbu"], busy["mfu"], busy["busy"]) == (0.5, 0.5, 0.25)
    costs.peak = "bf16"  # which this machine's meter does not have
    assert summarize(run(served(0.1, 0.01), step_s=0.5), instruments=instruments)["mfu"] is None


def test_without_a_served_request_there_are_no_figures() -> None:
    with pytest.raises(RequestError, match="none of 3 requests was served"):
        summarize(run(failed=3))


def test_objectives_that_nobody_met() -> None:
    slo = Slo(ttft=0.05, e2e=0.001)
    figures = summarize(run(served(0.1, 0.01)), slo=slo)
    error = ObjectivesError(slo, figures, {"workload": figures})
    assert (error.exit_code, error.kind, error.where) == (4, "objectives", "--slo")
    ttft, e2e = (figures[key]["p50"] for key in ("ttft_ms", "e2e_ms"))
    assert error.message == (
        "not one request meets the objectives: "
        f"the median ttft is {ttft:.4g} ms, 50 ms are allowed; "
        f"the median e2e is {e2e:.4g} ms, 1 ms are allowed"
    )
    assert error.hint == "allow more ttft and e2e, or send fewer or shorter requests"
    assert error.details == {"workload": figures}
    unknown = cast(Any, {"ttft_ms": {"p50": None}, "e2e_ms": {"p50": None}})
    assert ObjectivesError(slo, unknown, {}).message == "not one request meets the objectives"
    loose = ObjectivesError(Slo(ttft=100.0, e2e=1e-4), figures, {})
    assert loose.hint == "allow more e2e, or send fewer or shorter requests"
    met = ObjectivesError(Slo(ttft=100.0, e2e=100.0), figures, {})
    assert met.message.endswith("objectives: at the median each one is met, but never all at once")


def test_a_share_below_nine_tenths_is_a_warning() -> None:
    assert shortfall(0.9) == []
    assert shortfall(0.899) == ["89.9% of the requests meet the objectives, fewer than 90%"]
