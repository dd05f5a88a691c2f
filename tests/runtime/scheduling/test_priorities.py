"""Priorities: the order, who is preempted, and the bound of `optc.runtime.scheduling.policy`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.scheduling.policy import AGING_STEPS, place, steps_when_first
from tests.runtime.support.jobs import Job, World, make_world


def test_higher_priorities_are_admitted_first() -> None:
    world = make_world(running=1, spare=20)
    jobs = [world.add(4, 3, priority) for priority in (0, 2, -1, 2)]
    ended: list[Job] = []
    while len(ended) < 4:
        ended += world.step()
    assert [jobs.index(job) for job in ended] == [1, 3, 0, 2]


def test_prefills_go_by_priority() -> None:
    world = make_world(budget=8, spare=40)
    low = world.add(30, 2)
    world.step()
    high = world.add(12, 2, priority=1)
    world.step()
    assert (low.num_computed, high.num_computed) == (8, 8)
    world.step()
    assert (low.num_computed, high.num_computed) == (12, 12)


def test_a_waiting_request_of_higher_priority_takes_the_place_of_the_lowest() -> None:
    world = make_world(budget=8, running=2, spare=40)
    first, second = world.add(2, 20, priority=1), world.add(2, 20)
    world.step()
    high = world.add(2, 2, priority=1)
    world.step()
    assert world.scheduler.preempted == [second]
    assert high.num_computed == 2
    assert first.num_computed == 3, "the decode goes on"
    same = world.add(2, 2)
    world.step()
    assert world.scheduler.preempted == []
    assert same.num_computed == 0, "equals wait for their turn"


def test_without_blocks_the_lowest_goes() -> None:
    world = make_world(longest=32, budget=8, block_size=2)
    low, high = world.add(4, 28), world.add(4, 28, priority=1)
    while not world.scheduler.preempted:
        world.step()
    assert world.scheduler.preempted == [low]
    assert high.num_computed > 4


def test_waiting_is_aging() -> None:
    """A newcomer of one priority more overtakes only who waits less than AGING_STEPS steps."""
    for steps, overtaken in [(AGING_STEPS - 1, True), (AGING_STEPS + 1, False)]:
        world = make_world(running=1, longest=200, spare=60)
        world.add(1, 150, priority=1)
        old = world.add(1, 5)
        for _ in range(steps):
            world.step()
        new = world.add(1, 5, priority=1)
        assert (place(new) < place(old)) == overtaken


arrivals = st.lists(
    st.tuples(
        st.integers(0, 60),  # steps after the one before
        st.integers(1, 40),  # prompt
        st.integers(1, 24),  # output
        st.integers(-2, 2),  # priority
    ),
    min_size=2,
    max_size=24,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    arrivals=arrivals,
    budget=st.integers(2, 12),
    running=st.integers(1, 6),
    windows=st.sampled_from([(0,), (0, 9)]),
    spare=st.integers(0, 10),
    prefix_cache=st.booleans(),
)
def test_nobody_waits_longer_than_the_bound(
    arrivals: list[tuple[int, int, int, int]],
    budget: int,
    running: int,
    windows: tuple[int, ...],
    spare: int,
    prefix_cache: bool,
) -> None:
    """The three statements of `policy`, on any traffic and pools of one request or more."""
    world = make_world(
        windows=windows, budget=budget, running=running, spare=spare, prefix_cache=prefix_cache
    )
    arrived: dict[Job, int] = {}
    ended: dict[Job, int] = {}
    left = [list(arrival) for arrival in arrivals]
    now = 0
    while left or len(ended) < len(arrived):
        while left and left[0][0] <= 0:
            _, prompt, output, priority = left.pop(0)
            arrived[world.add(prompt, output, priority)] = now
        if left:
            left[0][0] -= 1
        advance_the_first(world)
        now += 1
        for job in [job for job in arrived if job.num_tokens >= job.length]:
            ended.setdefault(job, now)
        world.scheduler.check_integrity()
    for job, arrival in arrived.items():
        before = [other for other in arrived if place(other) < place(job)]
        for other in before:
            assert arrived[other] <= arrival or (
                arrived[other] <= arrival + (other.priority - job.priority) * AGING_STEPS
            )
        fixed = max([arrival, *(arrived[other] for other in before)])
        ahead = [other for other in before if ended[other] > fixed]
        bound = sum(
            steps_when_first(each.length, each.length - each.num_prompt, budget)
            for each in [job, *ahead]
        )
        assert ended[job] - fixed <= bound


def advance_the_first(world: World) -> None:
    """One step; the first in the order must get its rows."""
    jobs = sorted(world.scheduler.requests(), key=place)
    if not jobs:
        world.scheduler.schedule()  # time passes
        return
    first = jobs[0]
    computed, wanted = first.num_computed, first.num_tokens
    budget = world.scheduler.token_budget
    world.step()
    assert first not in world.scheduler.preempted
    assert first.num_computed >= min(wanted, computed + budget - budget // 2)


@pytest.mark.parametrize("prefills", [True, False])
def test_neither_decodes_nor_prefills_starve_the_other(prefills: bool) -> None:
    """A flood of the one kind, of higher priority, and one request of the other."""
    world = make_world(budget=8, running=4, spare=200, longest=64)
    rng = np.random.default_rng(0)
    victim = world.add(1, 40) if prefills else world.add(60, 1)
    world.step()
    steps = 1
    while victim.num_tokens < victim.length:
        if world.scheduler.num_waiting < 3:
            prompt = int(rng.integers(20, 40)) if prefills else 1
            world.add(prompt, 1 if prefills else 40, priority=1)
        world.step()
        steps += 1
    overtaking = AGING_STEPS + steps_when_first(64, 40, 8)
    assert steps <= overtaking + 4 * steps_when_first(victim.length, 40, 8)
