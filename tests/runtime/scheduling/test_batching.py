"""Static and dynamic batching: who is admitted when, and that no result changes."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.scheduling.batching import MODES, Batches, BatchingMode, make_batching
from optc.runtime.settings import ServeSettings
from tests.runtime.support.jobs import Job, make_world
from tests.runtime.support.toy import ToyExecutable, generate_naively, toy_spec


def test_a_static_batch_runs_to_its_end() -> None:
    world = make_world(spare=60, batching=Batches(3))
    jobs = [world.add(4, output) for output in (2, 9, 5, 3, 3)]
    ended: list[Job] = []
    while len(ended) < 3:
        assert all(job.num_computed == 0 for job in jobs[3:])
        ended += world.step()
    assert ended == [jobs[0], jobs[2], jobs[1]]
    world.step()
    assert jobs[3].num_computed == jobs[4].num_computed == 4


def test_a_preempted_member_comes_back_before_the_next_batch() -> None:
    world = make_world(longest=32, block_size=2, batching=Batches(2))
    first, second = world.add(4, 28), world.add(4, 28)
    world.step()
    other = world.add(1, 2, priority=9)
    preempted: list[Job] = []
    ended: list[Job] = []
    while len(ended) < 3:
        ended += world.step()
        preempted += world.scheduler.preempted
    assert set(preempted) == {second}
    assert ended == [first, second, other]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_dynamic_batch_waits_for_its_window_or_until_it_is_full() -> None:
    clock = Clock()
    executable = ToyExecutable(toy_spec(max_sequences=2))
    plan = KVPlan(4, (40,), 0, 64)
    settings = ServeSettings(token_budget=16, batching="dynamic", batch_window_ms=50)
    core = Core(executable, plan, settings, clock=clock)
    params = SamplingParams(temperature=0, max_tokens=2)

    def add(deadline_s: float | None = None) -> None:
        core.add(CompletionInput(np.array([1], np.int32), params, seed=0, deadline_s=deadline_s))

    assert core.wait_s() is None
    add()
    assert core.wait_s() == pytest.approx(0.05)
    assert core.step() == []
    clock.now = 0.03
    assert core.wait_s() == pytest.approx(0.02)
    clock.now = 0.051
    assert core.wait_s() == 0
    assert len(core.step()) == 1
    add()
    assert core.wait_s() == 0, "the batch runs"
    assert len(core.step()) == 1
    assert core.wait_s() == pytest.approx(0.05), "a new window opens"
    add()
    assert core.wait_s() == 0, "the batch is full"
    assert len(core.step()) == 2
    core.step()
    add(deadline_s=clock.now + 0.01)
    assert core.wait_s() == pytest.approx(0.01), "its deadline comes first"
    clock.now += 0.02
    assert [update.delta.finish_reason for update in core.step()] == ["deadline"]
    assert not core.has_work


@pytest.mark.parametrize("mode", ["continuous", "static", "dynamic"])
def test_results_are_the_same_in_every_mode(mode: BatchingMode) -> None:
    executable = ToyExecutable(toy_spec((0, 6), max_sequences=3))
    prompts = [[i] * (1 + 5 * (i % 4)) for i in range(9)]
    params = [SamplingParams(temperature=0, max_tokens=1 + i) for i in range(9)]
    with Engine(lambda: executable, ServeSettings(batching=mode, batch_window_ms=1)) as engine:
        results = engine.generate(prompts, params)
    for prompt, wanted, result in zip(prompts, params, results, strict=True):
        assert wanted.max_tokens is not None
        expected = generate_naively(executable.model, prompt, wanted.max_tokens)
        assert list(result.token_ids) == expected


def test_continuous_batching_takes_fewer_steps() -> None:
    steps = {}
    params = [SamplingParams(temperature=0, max_tokens=40 if i % 4 == 0 else 4) for i in range(12)]
    modes: tuple[BatchingMode, ...] = ("continuous", "static")
    for mode in modes:
        executable = ToyExecutable(toy_spec(max_sequences=8))
        with Engine(
            lambda e=executable: e, ServeSettings(batching=mode, max_sequences=4)
        ) as engine:
            engine.generate([[1]] * 12, params)
            steps[mode] = engine.metrics().steps
    assert steps["static"] == 3 * 40
    assert steps["continuous"] < 60


@pytest.mark.parametrize(
    ("mode", "window", "message"),
    [
        ("orca", 5, "batching: batching 'orca' is not known (one of continuous, static, dynamic)"),
        ("dynamic", 0, "batch_window_ms: a window of 0 ms (milliseconds above 0)"),
    ],
)
def test_unknown_modes_and_windows_are_refused(mode: str, window: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Engine(
            lambda: ToyExecutable(toy_spec()), ServeSettings(batching=mode, batch_window_ms=window)
        )  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_modes_by_name() -> None:
    kinds = [type(make_batching(mode, 5.0, 4)).__name__ for mode in MODES]
    assert dict(zip(MODES, kinds, strict=True))["continuous"] == "Continuous"
    assert "NoneType" not in kinds
