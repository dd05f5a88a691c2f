"""The loop on a tiny model: the loss falls, a stopped training goes on as if it had not been
stopped, and the result is never worse than the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from optc.compiling.training import memory, trainer
from optc.compiling.training.batches import Pool
from optc.compiling.training.checkpoint import Checkpoints
from optc.compiling.training.device import Place
from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.settings import Settings
from optc.compiling.training.trainer import Course, Task, Trainer
from optc.compiling.training.weights import FullWeight, LoraWeight
from optc.system.progress import no_progress
from tests.support.models import Dense, dense_model

SHAPE = Dense(tied=True)
SETTINGS = Settings(
    steps=12,
    batch=3,
    window=16,
    rate=5e-3,
    scale_rate=1.0,
    hidden_weight=0.0,
    every=4,
    patience=9,
    seed=1,
)


class StoppedError(Exception):
    pass


def task(settings: Settings = SETTINGS, *, lora: bool = False) -> Task:
    """The teacher's weights with noise, and zeros in one matrix."""
    teacher, student = (DenseExecutor(dense_model(SHAPE)) for _ in range(2))
    for index, (name, one) in enumerate(student.tensors.items()):
        rows = torch.from_numpy(one.rows())
        rows += (
            0.3
            * rows.std()
            * torch.randn(rows.shape, generator=torch.Generator().manual_seed(index))
        )
        if name == "1.down.weight":
            rows[:, ::2] = 0
        if lora and one.kind == "linear":
            student.set_weight(name, LoraWeight(rows, 2, index))
        else:
            student.set_weight(name, FullWeight(rows, trained=not lora))
    random = np.random.default_rng(0)
    stream = random.integers(0, SHAPE.vocab, 1200).astype(np.int32)
    held_out = random.integers(0, SHAPE.vocab, (4, 16)).astype(np.int32)
    pool = Pool(stream, held_out)
    return Task(student, teacher, pool, settings, Place("cpu", "float32"), SHAPE.vocab, 1000)


def run(one: Task, folder: Path) -> Course:
    return Trainer(one, Checkpoints(folder, {}), no_progress, "test").run()


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_the_divergence_falls_and_zeros_stay(tmp_path: Path, lora: bool) -> None:
    one = task(lora=lora)
    course = run(one, tmp_path / "c")
    assert course.best < (0.9 if lora else 0.7) * course.held_out[0][1]
    assert [step for step, _ in course.held_out] == [0, 4, 8, 12]
    assert np.mean(course.losses[-3:]) < np.mean(course.losses[:3])
    assert not one.student.effective()["1.down.weight"][:, ::2].any()


def test_a_stopped_training_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    whole = task()
    uninterrupted = run(whole, tmp_path / "whole")
    stopped = task()

    def stop(stage: str, done: int, total: int) -> None:
        if done == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        Trainer(stopped, Checkpoints(tmp_path / "c", {}), stop, "test").run()
    resumed = task()
    course = run(resumed, tmp_path / "c")
    assert course == uninterrupted
    for left, right in zip(whole.student.parameters(), resumed.student.parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_rate_that_destroys_ends_with_the_start(tmp_path: Path) -> None:
    one = task(replace(SETTINGS, rate=1.0, every=1, patience=2))
    before = {name: tensor.clone() for name, tensor in one.student.effective().items()}
    course = run(one, tmp_path / "c")
    assert (course.best_step, course.best) == course.held_out[0]
    assert min(kl for _, kl in course.held_out[1:]) > 2 * course.best
    for name, tensor in one.student.effective().items():
        assert torch.equal(tensor, before[name])


def test_nothing_gained_behind_the_middle_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([0.5, 0.4, *(0.5 + step / 20 for step in range(12))])
    monkeypatch.setattr(Trainer, "_held_out", lambda self: next(found))
    course = run(task(replace(SETTINGS, every=1, patience=2)), tmp_path / "c")
    assert course.stopped_early
    assert (course.best_step, course.best) == (1, 0.4)
    assert SETTINGS.steps / 2 < course.step < SETTINGS.steps  # not while the rate is large


def test_a_divergence_that_still_falls_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies above the start all the while, and falls behind the middle."""
    found = iter([0.1, *(1.0 - step / 20 for step in range(12))])
    monkeypatch.setattr(Trainer, "_held_out", lambda self: next(found))
    course = run(task(replace(SETTINGS, every=1, patience=1)), tmp_path / "c")
    assert (course.step, course.stopped_early, course.best_step) == (12, False, 0)


def test_a_divergence_that_is_no_number_ends_it_at_once(tmp_path: Path) -> None:
    one = task(replace(SETTINGS, every=1))
    with torch.no_grad():
        next(iter(one.student.weights.values())).rows[0, 0] = torch.nan
    course = run(one, tmp_path / "c")
    assert course.step == 0
    assert course.stopped_early


def test_windows_that_run_apart_give_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, steps=2, every=2)
    together = run(task(settings), tmp_path / "a")
    monkeypatch.setattr(memory, "ACTIVATION_BYTES", 1)
    one = task(settings)
    assert len(list(one.parts(3))) == 3
    apart = run(one, tmp_path / "b")
    assert apart.losses == pytest.approx(together.losses, rel=1e-4)
    assert apart.best == pytest.approx(together.best, rel=1e-4)


def test_minutes_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 s, 12 evaluations take 12, and two trial steps 8: there is room for 10 steps of 4."""
    taken = iter([1.0, 4.0, 4.0])
    monkeypatch.setattr(trainer, "seconds_of", lambda work, device: (work(), next(taken))[1])
    timed = replace(SETTINGS, minutes=1.0)

    def stop(stage: str, done: int, total: int) -> None:
        if done == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        Trainer(task(timed), Checkpoints(tmp_path / "c", {}), stop, "test").run()
    course = run(task(timed), tmp_path / "c")
    assert course.step == course.steps == 10
    counted = run(task(replace(SETTINGS, steps=10, every=1)), tmp_path / "whole")
    assert course == counted  # trial steps leave nothing behind


def test_progress_says_the_divergence_and_the_time_left(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    settings = replace(SETTINGS, steps=2, every=1)
    trained = Trainer(
        task(settings), Checkpoints(tmp_path / "c", {}), lambda *one: told.append(one), "test"
    )
    trained.run()
    assert told[0] == ("test", 0, 2)
    assert told[-1][0].startswith("test: held-out KL 0.")
    assert told[-1][0].endswith("left)")
