"""Timing whole steps, by a clock that only steps move."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.simulate import stopwatch
from optc.proof.simulate.step_times import Rows
from optc.proof.simulate.stopwatch import time_steps
from optc.runtime.executable.executable import Float32, StepBatch
from tests.runtime.support.toy import ToyExecutable, toy_spec


class Timed(ToyExecutable):
    """A step takes a second for each row; every fourth round of a shape is slow."""

    now = 0.0

    def step(self, batch: StepBatch) -> Float32:
        self.check(batch)
        self.batches.append(batch)
        self.now += len(batch.tokens)
        return np.zeros((len(batch.logit_rows), self.spec.vocab_size), np.float32)


def test_shapes_take_turns_and_each_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_TURN_S", 5.0)
    engine = Timed(toy_spec((0, 6)))
    shapes = [(Rows(1, 9),), (Rows(2, 4), Rows(1, 30)), (Rows(7, 7),)]
    told: list[tuple[int, int]] = []
    found = time_steps(
        engine, shapes, 2, lambda stage, done, total: told.append((done, total)), lambda: engine.now
    )
    assert found == [1.0, 3.0, 7.0]
    rows = [len(batch.tokens) for batch in engine.batches]
    turn = [1] * 10 + [3] * 4 + [7] * 2  # five seconds to warm up, as long to be timed
    assert rows == turn * 2
    assert told == [(n, 6) for n in range(7)]


def test_what_is_held_up_now_and_then_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_TURN_S", 0.0)

    class Disturbed(Timed):
        def step(self, batch: StepBatch) -> Float32:
            self.now += 100.0 if len(self.batches) in (3, 7, 11) else 0.0
            return super().step(batch)

    engine = Disturbed(toy_spec())
    found = time_steps(engine, [(Rows(2, 4),)], 8, lambda *_: None, lambda: engine.now)
    assert found == [2.0], "three of eight turns were disturbed"
