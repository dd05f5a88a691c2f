"""Deadlines: a request ends with what it has, whether it runs or waits."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.checks import shown
from optc.runtime.engine import Engine
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.deadlines import Deadlines
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, generate_naively, toy_spec

LONG = SamplingParams(temperature=0, max_tokens=50)


class Clock:
    """Time that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_core(clock: Clock, max_sequences: int = 8) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(toy_spec(max_sequences=max_sequences))
    return Core(
        executable, KVPlan(4, (40,), 0, 64), ServeSettings(token_budget=16), clock=clock
    ), executable


def add(core: Core, prompt: list[int], deadline_s: float | None) -> Request:
    return core.add(
        CompletionInput(np.array(prompt, np.int32), LONG, seed=0, deadline_s=deadline_s)
    )


def test_it_ends_with_what_it_has_and_the_others_go_on() -> None:
    clock = Clock()
    core, executable = make_core(clock)
    late, other = add(core, [1, 2], 3.0), add(core, [3], None)
    for _ in range(3):
        assert all(update.delta.finish_reason is None for update in core.step())
        clock.now += 1
    updates = core.step()
    assert [(u.request, u.delta.finish_reason) for u in updates] == [
        (late, "deadline"),
        (other, None),
    ]
    assert late.output.tolist() == generate_naively(executable.model, [1, 2], 3)
    assert late.completion().finish_reason == "deadline"
    core.scheduler.check_integrity()
    while core.has_work:
        core.step()
    assert other.finish_reason == "length"
    assert core.metrics().finished == {"deadline": 1, "length": 1}


def test_a_request_that_waits_ends_as_well_and_none_is_left_to_compute() -> None:
    clock = Clock()
    core, executable = make_core(clock, max_sequences=1)
    running, waiting = add(core, [1], 2.0), add(core, [2], 1.0)
    core.step()
    clock.now = 5
    assert [update.request for update in core.step()] == [waiting, running]
    assert (waiting.num_output, running.num_output) == (0, 1)
    assert not core.has_work
    assert len(executable.batches) == 1


def test_one_that_ended_before_its_deadline_is_left_alone() -> None:
    clock = Clock()
    core, _ = make_core(clock)
    request = add(core, [1], 1.0)
    core.cancel(request)
    other = add(core, [2], None)
    clock.now = 2
    core.step()
    assert (request.finish_reason, other.num_output) == ("cancelled", 1)


def test_the_engine_ends_requests_at_their_deadline() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        late = engine.submit([1, 2], LONG, deadline_s=1e-9).result()
        assert (late.finish_reason, late.output_tokens) == ("deadline", 0)
        results = engine.generate([[1], [2]], LONG, deadline_s=1e9, priority=3)
        assert [r.finish_reason for r in results] == ["length"] * 2
        assert engine.metrics().finished["deadline"] == 1


@pytest.mark.parametrize("deadline", [0, -1, math.nan, math.inf, 1e10, 10**400, "1"])
def test_bad_deadlines_are_refused(deadline: float) -> None:
    engine = Engine(lambda: ToyExecutable(toy_spec()))
    with engine, pytest.raises(RequestError) as caught:
        engine.submit([1], deadline_s=deadline)
    assert str(caught.value) == (
        f"deadline_s: a deadline of {shown(deadline)} seconds is not allowed "
        "(a number above 0 and up to 3162240000; None is no deadline)"
    )


@pytest.mark.parametrize("priority", [1.5, True, "high"])
def test_bad_priorities_are_refused(priority: int) -> None:
    engine = Engine(lambda: ToyExecutable(toy_spec()))
    with engine, pytest.raises(RequestError, match=r"^priority: a priority of .* is not allowed"):
        engine.generate([[1]], priority=priority)


class Watched:
    def __init__(self, number: int, deadline_s: float | None) -> None:
        self.id, self.deadline_s = number, deadline_s
        self.finish_reason: str | None = None


def test_what_has_ended_is_not_held_until_its_deadline() -> None:
    deadlines = Deadlines()
    going = [Watched(number, 3600.0 - number) for number in range(40)]
    held = []
    for request in [*going, *(Watched(number, 3600.0) for number in range(100, 2100))]:
        deadlines.add(cast("Request", request))
        if request.id >= 100:
            request.finish_reason = "stop"
        held.append(len(deadlines))
    assert max(held) == 80, "twice those that go on"
    assert deadlines.expired(3600.0) == going[::-1]
    assert len(deadlines) == 0


def test_the_next_deadline_is_the_earliest() -> None:
    deadlines = Deadlines()
    assert not deadlines
    late, soon, never = Watched(1, 9.0), Watched(2, 4.0), Watched(3, None)
    for request in (late, soon, never):
        deadlines.add(cast("Request", request))
    assert deadlines.expired(4.0) == [soon]
    late.finish_reason = "stop"
    assert deadlines.expired(10.0) == []
    assert not deadlines
