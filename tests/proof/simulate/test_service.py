"""What service adds to steps is found again, and an engine is served within its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.proof.bench.workload import Job
from optc.proof.simulate import service
from optc.proof.simulate.fit_service import fit_service
from optc.proof.simulate.serve import reached_s, simulate
from optc.proof.simulate.service import ServedStep, Service, begun, follows, serve
from optc.proof.simulate.step_times import Curve, Rows, Spread, StepTimes
from optc.runtime.settings import ServeSettings
from tests.proof.simulate.fakes import line, step_times
from tests.runtime.support.toy import ToyExecutable, toy_spec

ALONE = replace(step_times(step=1e-3, row=1e-4), body=Curve((1.0, 8.0, 64.0), (1.0, 2.0, 5.0)))


def as_served(times: StepTimes, count: int, seed: int = 0) -> list[ServedStep]:
    """Steps that take exactly what the model says, a caller handing requests in meanwhile."""
    rng = np.random.default_rng(seed)
    steps, now = [], 0.0
    shapes = []
    for _ in range(count):
        decodes = [Rows(1, int(n)) for n in rng.integers(2, 100, rng.choice([1, 2, 8]))]
        new = int(rng.integers(2, 50))
        chunk = [[], [Rows(new, new)], [Rows(new, new + 9)]][rng.integers(3)]
        shapes.append((*decodes, *chunk))
    for shape, after in zip(shapes, [*shapes[1:], shapes[0]], strict=True):
        rows, logits = sum(r.new for r in shape), len(shape)
        engine_s = times.engine_s(shape, logits) * times.service.at(rows)
        engine_s += times.arrival_s * sum(r.new == r.length for r in after)
        steps.append(ServedStep(shape, logits, now, now + engine_s))
        around_s = times.host.at(logits) + times.prompt_s * sum(r.new > 1 for r in after)
        now += engine_s + around_s
    return steps


def test_what_service_adds_is_recovered() -> None:
    true = replace(
        ALONE,
        service=Curve(ALONE.body.knots, (1.5, 1.2, 1.1)),
        host=line(0.01, 0.002),
        prompt_s=0.05,
        arrival_s=0.2,
    )
    seen = Service(as_served(true, 2000), submits=[1.0, 3.0], reaches=[4.0])
    found = fit_service(ALONE, seen)
    assert found.service.values == pytest.approx(true.service.values, rel=0.01)
    assert found.arrival_s == pytest.approx(0.2, rel=0.02)
    assert found.prompt_s == pytest.approx(0.05, rel=0.02)
    assert [found.host.at(n) for n in (1, 5, 9)] == pytest.approx([0.012, 0.02, 0.028], rel=0.05)
    assert (found.submit_s, found.reach_s) == (2.0, 4.0)
    for spread in found.spread:  # arrivals hold up the step before the one that they are charged to
        assert np.mean(spread.factors) == pytest.approx(1.0)


def test_where_nothing_was_served_steps_are_as_measured() -> None:
    found = fit_service(ALONE, Service(as_served(ALONE, 1)))
    for rows in (1, 8, 64):
        assert found.service.at(rows) == pytest.approx(1.0)


def test_rare_long_steps_keep_their_share() -> None:
    steps = []
    for index in range(1001):
        begin = float(index) + (7.0 if index > 500 else 0.0)  # one step is held up for 7 s
        steps.append(ServedStep((Rows(1, 10),), 1, begin, begin + 0.5))
    (spread,) = fit_service(ALONE, Service(steps)).spread
    assert np.mean(spread.factors) == pytest.approx(1.0)
    assert spread.factors[-1] == pytest.approx(1.7, abs=0.02)  # a hundredth of the steps
    assert spread.factors[0] == pytest.approx(spread.factors[-2])


def test_delays_are_drawn_and_leave_acceptance_alone() -> None:
    spec = toy_spec(max_context=512, max_rows=64, max_sequences=16, max_logit_rows=64)
    jobs = [Job(0.0, np.zeros(4, np.int32), 400)]
    times = step_times(step=1.0)
    uneven = replace(times, spread=(Spread(9.0, (0.5,) * 9 + (5.5,)),))
    settings = ServeSettings(token_budget=64, max_sequences=16)
    even, drawn = (simulate(spec, t, jobs, settings) for t in (times, uneven))
    gaps = [round(gap, 6) for gap in drawn.requests[0].metrics.itl_s]
    assert set(gaps) == {0.5, 5.5}
    assert drawn.seconds == pytest.approx(even.seconds, rel=0.35)
    runs = [
        simulate(spec, t, jobs, replace(settings, speculate="ngram", max_drafted=1), acceptance=1.0)
        for t in (times, uneven)
    ]
    assert runs[1].counters.acceptance_rate == runs[0].counters.acceptance_rate == 1.0


def test_one_caller_hands_requests_in_one_after_the_other() -> None:
    times = replace(step_times(), reach_s=0.5, submit_s=0.25)
    jobs = [Job(at, np.zeros(1, np.int32), 1) for at in (0.0, 0.0, 0.0, 3.0)]
    assert reached_s(jobs, times) == [0.5, 0.75, 1.0, 3.5]


@pytest.mark.parametrize(
    "spec",
    [
        toy_spec((0, 6), max_context=64),
        toy_spec(max_context=16, max_rows=4, max_sequences=8),
        toy_spec(max_context=8, max_rows=1, max_sequences=1),
    ],
)
def test_an_engine_is_served_within_its_limits(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy engine checks every batch."""
    monkeypatch.setattr(service, "_DECODE_S", 0.0)
    monkeypatch.setattr(service, "_MIXED_S", 0.0)
    monkeypatch.setattr(service, "_ARRIVALS", 3)
    seen = serve(lambda: ToyExecutable(spec))
    most = max(1, min(spec.max_sequences, spec.max_rows // 2))
    decoding = max(len(s.sequences) for s in seen.steps if all(new == 1 for new, _ in s.sequences))
    assert decoding == (most if spec.max_rows > 4 else 1)  # else none waits for the others
    assert all(s.began_s < s.ended_s for s in seen.steps)
    assert len(seen.reaches) == 3
    assert all(reach > 0 for reach in (*seen.reaches, *seen.submits))
    assert not follows(seen.steps[0])
    assert begun(seen.steps[0]) >= 1
    fitted = fit_service(step_times(step=1e-3), seen)
    assert fitted.step_s([Rows(1, 5)], 1) > 0
