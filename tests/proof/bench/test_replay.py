"""Replaying: what is sent when, what is counted, and the figures that follow."""

from __future__ import annotations

import time

import numpy as np
import pytest

from optc.errors import RequestError
from optc.proof.bench.replay import Run, Served, make_run, replay, warm_up
from optc.proof.bench.slo import Slo
from optc.proof.bench.summary import summarize
from optc.proof.bench.utilization import Instruments
from optc.proof.bench.workload import Job
from optc.proof.roofline.costs import StepCosts
from optc.runtime.engine import Engine
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.requests.request_metrics import RequestMetrics
from tests.proof.bench.fakes import COSTS, FakeMeter
from tests.runtime.support.toy import ToyExecutable, toy_spec


def job(at: float, prompt: int = 5, output: int = 3) -> Job:
    return Job(at, np.arange(prompt, dtype=np.int32), output)


def test_jobs_are_sent_when_they_are_due_and_the_warmup_is_not_counted() -> None:
    waits: list[float] = []
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        warm_up(engine)
        run = replay(
            engine,
            [job(0.0), job(2.0), job(4.0), job(5.0)],
            warmup=2,
            sleep=waits.append,
        )
    # Nobody really slept: each wait is the time to the arrival, less the little that has passed.
    assert len(waits) == 3
    assert all(at - 1 < wait <= at for wait, at in zip(waits, (2.0, 4.0, 5.0), strict=True))
    assert (len(run.requests), run.failed) == (2, 0)
    assert [(s.prompt_tokens, s.output_tokens) for s in run.requests] == [(5, 3)] * 2
    assert run.counters.finished["length"] <= 4
    assert run.offered_per_s == pytest.approx(1.0)


def test_latencies_count_from_the_planned_arrival() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        began = time.perf_counter()
        ticks = iter([began - 10, *[began] * 9])  # the sender is ten seconds late
        run = replay(engine, [job(0.0)], clock=lambda: next(ticks))
    (served,) = run.requests
    assert served.metrics.arrived_s == began - 10
    assert served.metrics.ttft_s is not None
    assert served.metrics.ttft_s > 10
    assert run.lateness.quantile(1) == pytest.approx(10, rel=0.01)


def served(arrived: float, *times: float) -> Served:
    metrics = RequestMetrics(arrived, arrived, list(times), times[-1])
    return Served(metrics, 100, len(times))


RUN = Run(
    [served(0.0, 0.5, 0.6, 0.7), served(1.0, 3.0, 3.1), served(2.0, 2.1, 4.0)],
    1,
    EngineMetrics(
        steps=10,
        step_s=2.0,
        output_tokens=7,
        drafted_tokens=4,
        accepted_tokens=2,
        prefix_lookup_tokens=300,
        prefix_hit_tokens=75,
        kv_use_sum=5.0,
        kv_use_peak=0.75,
        work=StepWorkload((0,), 10, 107, 7, [400], [9000]),
    ),
    4.0,
    1.0,
)


def test_figures_follow_from_the_run() -> None:
    found = summarize(RUN, slo=Slo(ttft=1.0, tpot=0.5), price_per_hour=3.6)
    assert found["requests"] == 3
    assert found["failed"] == 1
    assert (found["input_tokens_per_s"], found["output_tokens_per_s"]) == (75, 7 / 4)
    assert found["ttft_ms"]["p50"] == pytest.approx(500, rel=0.005)
    assert found["ttft_ms"]["p99"] == pytest.approx(2000, rel=0.005)
    assert found["itl_ms"]["mean"] == pytest.approx(1000 * (0.1 + 0.1 + 0.1 + 1.9) / 4)
    # The second misses its TTFT, the third its TPOT; the one that failed counts too.
    assert found["goodput"]["share"] == 0.25
    assert found["goodput"]["requests_per_s"] == 0.25
    assert found["goodput"]["slo"] == {
        "ttft_ms": 1000,
        "tpot_ms": 500,
        "e2e_ms": None,
        "itl_ms": None,
    }
    assert (found["acceptance_rate"], found["tokens_per_pass"]) == (0.5, 7 / 5)
    assert (found["prefix_hit_rate"], found["kv_use"]) == (0.25, {"mean": 0.5, "peak": 0.75})
    assert found["busy"] == 0.5
    # 0.004 for four seconds, for 7 and for 307 tokens.
    assert found["cost"]["per_million_output_tokens"] == pytest.approx(1e6 * 0.004 / 7)
    assert found["cost"]["per_million_tokens"] == pytest.approx(1e6 * 0.004 / 307)
    assert found["mbu"] is found["mfu"] is None


def test_utilization_is_of_the_time_that_the_engine_worked() -> None:
    instruments = Instruments(StepCosts("int8", COSTS.kernels), FakeMeter())
    found = summarize(RUN, instruments=instruments)
    moved = 10 * 1000 + 400 * 10
    operations = 107 * 400 + 9000 * 8
    assert found["mbu"] == pytest.approx(moved / 2.0 / 1e6)
    assert found["mfu"] == pytest.approx(operations / 2.0 / 2e6)
    assert found["goodput"] is found["cost"] is None


def test_a_run_in_which_nothing_was_served_is_an_error() -> None:
    run = make_run([job(1.0), job(3.0)], [], EngineMetrics(), 7.0)
    assert (run.failed, run.seconds, run.offered_per_s) == (2, 0.0, 0.5)
    with pytest.raises(RequestError, match="workload: none of 2 requests was served"):
        summarize(run)
