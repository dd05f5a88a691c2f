"""Thousands of requests in virtual time: priorities, deadlines, cancellations, a tiny pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from optc.runtime.scheduling.policy import place, steps_when_first
from tests.runtime.support.jobs import Job, World, make_world

#: Of a short run, and of a long one.
FEW, MANY = 2_000, 10_000
BUDGET = 64


@dataclass
class History:
    """What happened to all of so many requests, in steps."""

    requests: int
    jobs: list[Job] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    deadlines: dict[int, list[Job]] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    completed: int = 0
    preempted: int = 0


def arrive(world: World, history: History, rng: np.random.Generator, now: int) -> None:
    """A few requests; a tenth of them with a deadline, which some will miss."""
    for _ in range(min(int(rng.poisson(1.8)), history.requests - len(history.jobs))):
        prompt, output = int(rng.integers(1, 30)), int(rng.integers(1, 14))
        job = world.add(prompt, output, priority=int(rng.integers(-1, 3)))
        history.jobs.append(job)
        history.arrived.append(now)
        if rng.random() < 0.1:
            history.deadlines.setdefault(now + int(rng.integers(2, 30)), []).append(job)


def cut(world: World, history: History, rng: np.random.Generator, now: int) -> None:
    """End whose deadline is now, and at times cancel a running or a waiting request."""
    late = history.deadlines.pop(now, [])
    live = list(world.scheduler.requests())
    if live and rng.random() < 0.05:
        late.append(live[int(rng.integers(len(live)))])
    for job in late:
        if job.id not in history.ended:
            world.scheduler.remove(job)
            history.ended[job.id] = now


def simulate(prefix_cache: bool, requests: int) -> History:
    rng = np.random.default_rng(7)
    world = make_world(
        longest=44,
        budget=BUDGET,
        running=24,
        spare=5 if prefix_cache else 70,  # all tokens are equal, so that prefixes are shared
        block_size=4,
        prefix_cache=prefix_cache,
    )
    history, now = History(requests), 0
    while len(history.ended) < requests:
        arrive(world, history, rng, now)
        cut(world, history, rng, now)
        decoding = [j for j in world.scheduler.running if j.num_tokens - j.num_computed == 1]
        before = [job.num_computed for job in decoding]
        done = world.step()
        for job, computed in zip(decoding, before, strict=True):
            assert job.num_computed == computed + 1 or job in world.scheduler.preempted
        now += 1
        history.ended.update((job.id, now) for job in done)
        history.completed += len(done)
        history.preempted += len(world.scheduler.preempted)
        world.scheduler.check_integrity()  # free + held + cached = total, and more
    assert world.blocks.available() == tuple(pool.total for pool in world.blocks.pools)
    return history


def steps_over_bound(history: History) -> npt.NDArray[np.int64]:
    """[requests] steps from when nobody can overtake any more to the end, less the bound."""
    jobs = history.jobs
    order = sorted(range(len(jobs)), key=lambda number: place(jobs[number]))
    arrived = np.array(history.arrived)[order]
    ended = np.array([history.ended[jobs[number].id] for number in order])
    own = np.array(
        [
            steps_when_first(job.length, job.length - job.num_prompt, BUDGET)
            for job in (jobs[number] for number in order)
        ]
    )
    fixed = np.maximum.accumulate(arrived)  # the last arrival up to a place in the order
    ahead = [own[:n][ended[:n] > fixed[n]].sum() for n in range(len(jobs))]
    return ended - fixed - own - np.array(ahead)


@pytest.mark.parametrize("requests", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_all_requests_end_in_time(prefix_cache: bool, requests: int) -> None:
    history = simulate(prefix_cache, requests)
    assert len(history.jobs) == requests
    assert history.preempted > 100, "the pool is tiny"
    assert requests * 0.8 < history.completed < requests, "some were late or cancelled"
    assert steps_over_bound(history).max() <= 0
