"""Distillation: a student learns the teacher's predictions (Hinton et al., 2015, arXiv:1503.02531;
of pruned language models: Muralidharan et al., 2024, arXiv:2407.14679)."""

from __future__ import annotations

from pathlib import Path

import torch

from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.memory import BESIDE_LORA, TRAINED
from optc.compiling.training.session import Outcome, Session, begin, files_read
from optc.compiling.training.settings import read_settings
from optc.compiling.training.student import import_dense, pruned_student
from optc.compiling.training.weights import FullWeight, LoraWeight
from optc.importer.hub import local_model
from optc.system.options.training_options import DistillOptions
from optc.system.progress import Progress, no_progress
from optc.system.sources.steady import steady_throughout


def distill(
    model: str | Path, asked: DistillOptions, *, progress: Progress = no_progress
) -> Outcome:
    """Train a model, or what a recipe's pruning leaves of it, on a teacher's predictions.

    The result is never worse than the start on the held-out text. A training that was stopped goes
    on where it was when it is begun again with the same options.

    Args:
        model: Folder of the model, or its name on the Hub, as of `optc.compile`.
        asked: Options.
        progress: Told what goes on.

    Raises:
        InputError: Bad options, model or text, or one of these changed meanwhile.
        UnsupportedError: Something in a model is not recognized.
        UnavailableError: The device is not there.
    """
    settings = read_settings(asked, hidden_loss=asked.hidden_loss)
    with steady_throughout(files_read(model, asked, asked.teacher)):
        session = begin("distill", Path(model), asked, settings, progress)
        with session.memory:
            return _distill(session, asked)


def _distill(session: Session, asked: DistillOptions) -> Outcome:
    code, progress = asked.allow_remote_code, session.progress
    given, other = None, None  # the teacher: looked up before the long stages
    if asked.teacher is not None:
        folder = local_model(asked.teacher, code=code, progress=progress)
        given = import_dense(folder, progress, allow_remote_code=code)
        other = given.model
    check = session.check(other, TRAINED if asked.lora is None else BESIDE_LORA)
    student = pruned_student(session.source, asked, progress, check)
    teacher = student.source if other is None else other
    ours = DenseExecutor(student.model)
    _make_trainable(ours, asked)
    more = {"lora": asked.lora, "teacher": None if given is None else given.source_digest}
    checkpoints = session.checkpoints(student.pipeline, more)
    course, seconds = session.train(student, ours, teacher, checkpoints, "--teacher")
    whole = session.write(student, ours, course, {})
    checkpoints.remove()
    figures = {**session.figures(course), "hugging_face": whole, **session.seen(seconds)}
    return Outcome(session.output, figures, (*student.warnings, *session.warnings(course)))


def _make_trainable(ours: DenseExecutor, asked: DistillOptions) -> None:
    """All tensors, or narrow matrices beside the weights of linear layers."""
    for index, (name, tensor) in enumerate(ours.tensors.items()):
        rows = torch.from_numpy(tensor.rows())
        if asked.lora is None:
            ours.set_weight(name, FullWeight(rows, trained=True))
        elif tensor.kind == "linear" and len(tensor.initializers) == 1:
            ours.set_weight(name, LoraWeight(rows, asked.lora, asked.seed + index))
