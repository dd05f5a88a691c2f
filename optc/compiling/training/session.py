"""One training from its models to its folder: what distillation and rounding have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from optc.compiling.resolving.limits import check_passes
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.training.batches import Pool, check_tokenizer, read_pool
from optc.compiling.training.checkpoint import Checkpoints
from optc.compiling.training.device import Place, choose_device, choose_precision
from optc.compiling.training.executor import DenseExecutor, check_trainable
from optc.compiling.training.losses import Runner
from optc.compiling.training.memory import all_width, check_training, training_bytes
from optc.compiling.training.result import Rounded, check_output, same_as_checkpoint, write_result
from optc.compiling.training.settings import Settings
from optc.compiling.training.student import Check, Student, check_vocabulary, unread_student
from optc.compiling.training.trainer import Course, SharedTensors, Task, Trainer
from optc.compiling.training.weights import RoundedWeight
from optc.errors import InputError
from optc.importer.source_digest import digest_source
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.tensors import model_tensors
from optc.proof.reference.text import digest_text
from optc.system.options.training_options import TrainingOptions
from optc.system.progress import Progress
from optc.system.sources.steady import check_steady


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training.

    Attributes:
        folder: What it wrote.
        figures: JSON values: steps, tokens, held-out KL at the start and at the end, …
        warnings: What the user should know.
    """

    folder: Path
    figures: Mapping[str, Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """A training that may begin.

    Attributes:
        kind: ``distill`` or ``qat``.
        asked: What the user said.
        settings: Read from that.
        source: The model's folder.
        output: What is written.
        progress: Told what goes on.
        limit: Of memory, in bytes; 0 is none.
        memory: Samples what the training takes, and ends what takes more.
    """

    kind: str
    asked: TrainingOptions
    settings: Settings
    source: Path
    output: Path
    progress: Progress
    limit: int
    memory: PeakMemory

    def check(self, teacher: ir.Model | None, of_a_weight: int) -> Check:
        """Refuses what is predicted to take more memory than is allowed, before it begins.

        Args:
            teacher: Dense form; None is the model itself.
            of_a_weight: Bytes of a weight of the student (`optc.compiling.training.memory`).
        """

        def check(dense: ir.Model, pipeline: Pipeline, place: int) -> None:
            check_trainable(dense)
            if not self.limit or choose_device(self.asked.device, self.asked.threads) != "cpu":
                return
            check_passes(dense, pipeline.passes[:place], self.limit)
            student, shape = unread_student(dense, pipeline, place), self.settings
            others = dense if teacher is None else teacher
            needed = training_bytes(student, others, shape.window, shape.batch, of_a_weight)
            check_training(needed, self.limit)

        return check

    def pool(self, student: Student) -> Pool:
        """The text.

        Raises:
            InputError: It cannot be used.
        """
        texts = [Path(one) for one in self.asked.text]
        imported = student.imported
        return read_pool(
            imported.folder, imported.config, texts, self.asked.heldout, self.settings.window
        )

    def checkpoints(self, pipeline: str, more: Mapping[str, Any]) -> Checkpoints:
        """The checkpoints of the training, beside the output."""
        texts = [Path(one) for one in self.asked.text]
        judged = self.asked.heldout
        depends = {
            "kind": self.kind,
            "settings": self.settings.to_json(),
            "source": digest_source(self.source),
            "pipeline": pipeline,
            "texts": [digest_text(one) for one in texts],
            "heldout": None if judged is None else digest_text(judged),
            "device": self.asked.device,
            "precision": self.asked.precision,
            **more,
        }
        folder = self.output.with_name(f"{self.output.name}.checkpoints")
        return Checkpoints(folder, depends)

    def train(
        self,
        student: Student,
        ours: DenseExecutor,
        teacher: ir.Model,
        checkpoints: Checkpoints,
        where: str,
    ) -> tuple[Course, float]:
        """Train ``ours``; returns what was found, and the seconds of it."""
        check_steady()  # before hours of work
        vocabulary = check_vocabulary(student.model, teacher, where)
        pool = self.pool(student)
        if pool.stream.size and int(max(pool.stream.max(), pool.held_out.max())) >= vocabulary:
            raise InputError(
                f"the tokenizer gives ids beyond the {vocabulary} that the model knows",
                where=str(student.imported.folder / "tokenizer.json"),
                hint="tokenizer and model do not belong together",
            )
        device = choose_device(self.asked.device, self.asked.threads)
        theirs = DenseExecutor(teacher).to(device)
        ours.to(device)
        place = self._place(ours, device, pool, checkpoints)
        task = Task(ours, theirs, pool, self.settings, place, vocabulary, all_width(student.model))
        started = time.perf_counter()
        course = Trainer(task, checkpoints, self.progress, self.kind).run()
        return course, time.perf_counter() - started

    def _place(
        self, ours: DenseExecutor, device: str, pool: Pool, checkpoints: Checkpoints
    ) -> Place:
        """As chosen, as it was before a stop, or as measured on one window."""
        before = checkpoints.last()
        if before is not None:
            return Place(device, str(before[1]["precision"]))
        tokens = torch.from_numpy(pool.held_out[:1].astype("int64")).to(device)

        def work(place: Place) -> None:
            with SharedTensors(ours) as tensors, place.autocast():
                Runner(ours, tensors).hidden(tokens).float().square().mean().backward()
            for parameter in ours.parameters():
                parameter.grad = None

        return choose_precision(self.asked.precision, device, work)

    def write(
        self,
        student: Student,
        ours: DenseExecutor,
        course: Course,
        rounded: Mapping[str, Rounded],
    ) -> bool:
        """Write the result; whether it is a Hugging Face folder."""
        self.progress("write", 0, 0)
        skipped = {ours.tensor_of(name) for name in rounded}
        tensors = {
            name: tensor.detach().float().cpu().numpy()
            for name, tensor in ours.effective().items()
            if name not in skipped
        }
        before, after = (
            {one.name: one.shape for one in model_tensors(model)}
            for model in (student.source, student.model)
        )
        whole = before == after and not rounded
        whole = whole and same_as_checkpoint(student.imported, model_tensors(student.source))
        stated = {
            "kind": self.kind,
            "settings": {**self.settings.to_json(), "steps": course.steps},
            "pipeline": student.pipeline,
            "source_digest": student.imported.source_digest,
            **self.figures(course),
        }
        write_result(self.output, tensors, rounded, stated, student.imported if whole else None)
        return whole

    def figures(self, course: Course) -> dict[str, Any]:
        """The reported figures of a training, apart from `seen`."""
        return {
            "steps": course.step,
            "tokens": course.step * self.settings.batch * self.settings.window,
            "start_kl": course.held_out[0][1],
            "kl": course.best,
            "best_step": course.best_step,
            "stopped_early": course.stopped_early,
            "precision": course.precision,
            "evaluations": [{"step": step, "kl": kl} for step, kl in course.held_out],
        }

    def seen(self, seconds: float) -> dict[str, Any]:
        """The reported figures that differ between runs of the same training."""
        return {"seconds": seconds, "peak_anon_bytes": self.memory.peak_bytes}

    def warnings(self, course: Course) -> tuple[str, ...]:
        """Warnings about the result, for the user."""
        if course.best_step:
            return ()
        return (
            "training gained nothing on the held-out text: the weights are those of the start; try "
            "a smaller --rate, or more text",
        )


def files_read(model: str | Path, asked: TrainingOptions, *others: object) -> list[object]:
    """Paths of all that a training reads, for `optc.system.sources.steady`."""
    return [model, *asked.text, asked.heldout, asked.trained, asked.calibration, *others]


def begin(
    kind: str, model: Path, asked: TrainingOptions, settings: Settings, progress: Progress
) -> Session:
    """A session, after the checks that need no model.

    Raises:
        InputError: No text, a file that is missing, an output that is taken, or a model that the
            Hub does not have.
        UnavailableError: The Hub cannot be reached.
    """
    limit = limit_of(asked.max_ram)
    if not asked.text:
        raise InputError("no text to train on", where="--text", hint="--text FILE, repeated")
    files = [*(("--text", Path(one)) for one in asked.text)]
    files += [("--heldout", asked.heldout)] if asked.heldout is not None else []
    for where, file in files:
        if not file.is_file():
            raise InputError(f"no such file: {file}", where=where)
    from optc.importer.folders.given_model import given_model
    from optc.importer.model_folder import model_name

    source, named = given_model(model, code=asked.allow_remote_code)
    name = model_name(source).rsplit("/", 1)[-1]
    output = asked.output or Path("artifacts") / f"{name}-{kind}"
    check_output(output, force=asked.force)
    _check_apart(output, files_read(model, asked, getattr(asked, "teacher", None)))
    if (source / "config.json").is_file():  # what is no model is left to the importer
        check_tokenizer(source)
    if named is not None:
        named.fetch_weights(source, progress)
    memory = PeakMemory(limit, "the training")
    return Session(kind, asked, settings, source, output, progress, limit, memory)


def _check_apart(output: Path, read: list[object]) -> None:
    """Refuse to replace a folder of which something is read."""
    for one in read:
        if not isinstance(one, str | Path) or not os.path.lexists(one):
            continue
        if output.exists() and Path(one).resolve().is_relative_to(output.resolve()):
            raise InputError(
                f"{one} lies in it, and would be lost",
                where=str(output),
                hint="take another folder as --output",
            )


def rounded_of(ours: DenseExecutor, grids: Mapping[str, Any]) -> dict[str, Rounded]:
    """The rounded weights of linear layers as they are now, by the names of the layers."""
    found = {}
    for name, grid in grids.items():
        weight = ours.weights[ours.tensor_of(name)]
        if isinstance(weight, RoundedWeight):
            found[name] = Rounded(grid, weight.tile())
    return found
