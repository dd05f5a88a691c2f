"""The loop: steps, evaluations, checkpoints, and the best state at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from optc.compiling.training.batches import Pool, Windows
from optc.compiling.training.checkpoint import Checkpoints
from optc.compiling.training.device import Place, seconds_of
from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.losses import Runner, backward, divergence_sum
from optc.compiling.training.memory import windows_together
from optc.compiling.training.schedule import rate_share
from optc.compiling.training.settings import Settings
from optc.system.progress import Progress

_BETAS = (0.9, 0.95)
#: Share of the learning rate below which evaluations without gain count: at the largest rate a
#: training often loses what it wins, and more, as the rate falls.
_FALLEN = 0.5
#: Largest norm of all gradients together.
_CLIP = 1.0


@dataclass
class Course:
    """The state of a training and its findings, as a checkpoint states them.

    Attributes:
        step: Steps done.
        losses: Mean KL of each step on its own windows, in nats a token.
        held_out: Steps done and mean KL on held-out windows, of each evaluation.
        best_step: Steps done at the best evaluation.
        best: Its KL.
        idle: Evaluations since the best that were no better than the one before, the rate having
            fallen.
        precision: Of products.
        steps: To do; 0 before they are counted.
        stopped_early: Whether it ended because nothing was gained any more.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    best_step: int = 0
    best: float = float("inf")
    idle: int = 0
    precision: str = ""
    steps: int = 0
    stopped_early: bool = False


@dataclass(frozen=True)
class Task:
    """The student to train, and all that it is trained with.

    Attributes:
        student: The parameters of its weights are trained.
        teacher: Stays.
        pool: Text.
        settings: The course.
        place: Where.
        vocabulary: V of both.
        activation_width: Values of a token between all nodes of the student.
    """

    student: DenseExecutor
    teacher: DenseExecutor
    pool: Pool
    settings: Settings
    place: Place
    vocabulary: int
    activation_width: int

    def parts(self, windows: int) -> Iterator[slice]:
        """Slices of windows that run together, as many as activations have room for."""
        count = windows_together(self.settings.window, self.activation_width)
        for start in range(0, windows, count):
            yield slice(start, min(start + count, windows))


class Trainer:
    """Trains a `Task`; `run` ends with the student in its best state.

    Args:
        task: What.
        checkpoints: Where it may go on from, and what it leaves.
        progress: Told after each step; the stage says the last evaluation and the time left.
        name: Of the stage.
    """

    def __init__(self, task: Task, checkpoints: Checkpoints, progress: Progress, name: str) -> None:
        self._task, self._checkpoints, self._progress = task, checkpoints, progress
        self._name = name
        self._course = Course(precision=task.place.precision)
        weights = list(task.student.weights.values())
        settings = self._settings = task.settings
        values = [p for weight in weights for p in weight.trained()]
        scales = [p for weight in weights for p in weight.scales()]
        self._parameters: list[nn.Parameter] = [*values, *scales]
        groups = [(values, 1.0), (scales, settings.scale_rate)]
        self._optimizer = torch.optim.AdamW(
            [{"params": params, "share": share} for params, share in groups if params],
            lr=settings.rate,
            betas=_BETAS,
            weight_decay=0.0,
        )
        kept = {name: tensor.detach() for name, tensor in task.teacher.effective().items()}
        self._teacher = Runner(task.teacher, kept)
        self._held_out_hidden: list[Tensor] = []
        pool = task.pool
        self._windows = Windows(
            pool.stream, settings.window, settings.batch, settings.seed, pool.start
        )

    def run(self) -> Course:
        """Train to the end, or until nothing is gained; returns what was found."""
        self._resume()
        course = self._course
        if not course.held_out:
            self._progress(self._name, 0, 0 if self._settings.minutes else self._settings.steps)
            self._evaluate()
        if self._settings.minutes:
            self._count_steps()
        course.steps = self._settings.steps
        started, first, settings = time.perf_counter(), course.step, self._settings
        stage = self._stage(_left(started, first, course, settings.steps))
        while course.step < settings.steps and not course.stopped_early:
            course.losses.append(self._step(course.step))
            course.step += 1
            self._progress(stage, course.step, settings.steps)
            if course.step % settings.every == 0 or course.step == settings.steps:
                self._evaluate()
                stage = self._stage(_left(started, first, course, settings.steps))
        self._take_best()
        return course

    def _count_steps(self) -> None:
        """As many as the minutes have room for; what was counted before a stop stays."""
        steps = self._course.steps
        if not steps:
            device = self._task.place.device
            of_evaluation = seconds_of(self._held_out, device)
            first, second = (seconds_of(lambda: self._gradients(0), device) for _ in range(2))
            self._optimizer.zero_grad(set_to_none=True)
            spent = 2 * of_evaluation + first + second
            steps = self._settings.steps_within(second, of_evaluation, spent)
        self._settings = self._settings.of_steps(steps)

    def _step(self, step: int) -> float:
        """One step of the optimizer; the mean KL on its windows before it."""
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.rate * group["share"] * rate_share(step, settings.steps)
        loss = self._gradients(step)
        torch.nn.utils.clip_grad_norm_(self._parameters, _CLIP)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss

    def _gradients(self, step: int) -> float:
        """Those of a step's windows; returns the mean KL on them."""
        task, settings = self._task, self._settings
        tokens = self._windows(step).to(task.place.device)
        loss = 0.0
        with SharedTensors(task.student) as tensors:
            student = Runner(task.student, tensors)
            for part in task.parts(len(tokens)):
                share = (part.stop - part.start) / len(tokens)
                with task.place.autocast():
                    kl = backward(
                        student,
                        self._teacher,
                        tokens[part],
                        task.vocabulary,
                        settings.hidden_weight,
                        share,
                    )
                loss += share * kl
        return loss

    @torch.no_grad()
    def _held_out(self) -> float:
        """Mean KL on the held-out windows, in float32."""
        task = self._task
        tokens = torch.from_numpy(task.pool.held_out.astype("int64")).to(task.place.device)
        student = Runner(task.student, task.student.effective())
        parts = list(task.parts(len(tokens)))
        with replace(task.place, precision="float32").autocast():
            if not self._held_out_hidden:  # the teacher stays: its run is kept
                self._held_out_hidden = [
                    self._teacher.hidden(tokens[part]).flatten(0, 1) for part in parts
                ]
            total = sum(
                divergence_sum(student, self._teacher, tokens[part], theirs, task.vocabulary)
                for part, theirs in zip(parts, self._held_out_hidden, strict=True)
            )
        return max(total, 0.0) / tokens.numel()  # rounding can leave -1e-7

    def _evaluate(self) -> None:
        course = self._course
        found = self._held_out()
        falls = bool(course.held_out) and found < course.held_out[-1][1]
        course.held_out.append((course.step, found))
        if found < course.best:
            course.best, course.best_step, course.idle = found, course.step, 0
            self._checkpoints.save_best(self._tensors(), {"step": course.step})
        elif not falls and rate_share(course.step, self._settings.steps) < _FALLEN:
            course.idle += 1
        hopeless = course.idle >= self._settings.patience or not math.isfinite(found)
        course.stopped_early = hopeless and course.step < self._settings.steps
        moments = self._optimizer.state
        state = {
            f"{kind}.{index}": moments[p][kind]
            for index, p in enumerate(self._parameters)
            for kind in ("exp_avg", "exp_avg_sq")
            if p in moments
        }
        self._checkpoints.save_last({**self._tensors(), **state}, vars(course))

    def _tensors(self) -> dict[str, Tensor]:
        return {f"parameter.{index}": p.detach() for index, p in enumerate(self._parameters)}

    def _resume(self) -> None:
        found = self._checkpoints.last()
        if found is None:
            return
        tensors, state = found
        self._course = Course(**state)
        self._course.held_out = [(int(step), float(kl)) for step, kl in state["held_out"]]
        self._load(tensors)
        for index, p in enumerate(self._parameters):
            if f"exp_avg.{index}" in tensors:
                self._optimizer.state[p] = {
                    "step": torch.tensor(float(self._course.step)),
                    **{
                        kind: tensors[f"{kind}.{index}"].to(p.device)
                        for kind in ("exp_avg", "exp_avg_sq")
                    },
                }

    def _take_best(self) -> None:
        best = self._checkpoints.best()
        if best is not None:
            self._load(best[0])

    @torch.no_grad()
    def _load(self, tensors: dict[str, Tensor]) -> None:
        for index, p in enumerate(self._parameters):
            p.copy_(tensors[f"parameter.{index}"])

    def _stage(self, left: str) -> str:
        course = self._course
        if not course.held_out:
            return self._name
        return f"{self._name}: held-out KL {course.held_out[-1][1]:.4f} {left}".rstrip()


class SharedTensors:
    """The student's tensors, computed once for all parts of a step: gradients of the parts are
    summed on them, and go on to what they are computed from when the block ends.

    Args:
        executor: The student.
    """

    def __init__(self, executor: DenseExecutor) -> None:
        self._whole = executor.effective()
        self._leaves = {
            name: tensor.detach().requires_grad_()
            for name, tensor in self._whole.items()
            if tensor.requires_grad and not tensor.is_leaf
        }

    def __enter__(self) -> dict[str, Tensor]:
        return {**self._whole, **self._leaves}

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        taken = [name for name, leaf in self._leaves.items() if leaf.grad is not None]
        if error is None and taken:
            torch.autograd.backward(
                [self._whole[name] for name in taken], [self._leaves[name].grad for name in taken]
            )


def _left(started: float, first: int, course: Course, steps: int) -> str:
    """The time left, for reading; nothing before the first step."""
    done = course.step - first
    if not done:
        return ""
    minutes = (time.perf_counter() - started) / done * (steps - course.step) / 60
    return f"({minutes:.0f} min left)" if minutes >= 1 else f"({60 * minutes:.0f} s left)"
