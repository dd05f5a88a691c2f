"""A command that was stopped goes on when it is given again, and ends as if it had not been."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from optc.compiling.training import session, student
from optc.compiling.training.batches import Pool
from optc.compiling.training.distill import distill
from optc.compiling.training.qat import qat
from optc.compiling.training.session import Outcome
from optc.errors import InputError, UnsupportedError
from optc.importer.imported import ImportedModel
from optc.system.options.training_options import DistillOptions, QatOptions
from optc.system.progress import Progress
from tests.compiling.training.test_distill import QUICK, recipe
from tests.compiling.training.test_qat import RECIPE
from tests.support.experts.models import expert_model

__all__ = ["recipe"]  # a fixture


class StoppedError(Exception):
    pass


def stop(stage: str, done: int, total: int) -> None:
    if stage.startswith("distill") and done == 7:
        raise StoppedError


def test_the_same_command_goes_on_where_it_was(source: Path, text: Path, recipe: Path) -> None:
    whole, again = (
        DistillOptions(text=[str(text)], output=text.parent / name, recipe=recipe, **QUICK)
        for name in ("whole", "again")
    )
    distill(source, whole)
    with pytest.raises(StoppedError):
        distill(source, again, progress=stop)
    assert (text.parent / "again.checkpoints").is_dir()
    with pytest.raises(InputError, match=r"again\.checkpoints: holds .* with other settings"):
        distill(source, replace(again, rate="1e-3"))
    distill(source, again)
    left, right = (load_file(text.parent / n / "model.safetensors") for n in ("whole", "again"))
    assert left.keys() == right.keys()
    assert all((left[name] == right[name]).all() for name in left)


def test_a_tokenizer_of_another_model(
    source: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(np.full(900, 300, np.int32), np.zeros((2, 32), np.int32))
    monkeypatch.setattr(session, "read_pool", lambda *arguments: pool)
    asked = DistillOptions(text=[str(text)], output=text.parent / "o", **QUICK)
    with pytest.raises(InputError, match="the tokenizer gives ids beyond the 264"):
        distill(source, asked)


TRAININGS: dict[str, Callable[[Path, Any, Progress], Outcome]] = {
    "distill": lambda model, asked, told: distill(model, asked, progress=told),
    "qat": lambda model, asked, told: qat(model, asked, progress=told),
}


@pytest.mark.parametrize("kind", TRAININGS)
@pytest.mark.parametrize("changed", ["model", "text"])
@pytest.mark.parametrize("stage", ["import", "training", "write"])
def test_what_changes_while_it_is_read_is_not_learnt_from(
    source: Path, text: Path, kind: str, changed: str, stage: str
) -> None:
    file, out = {"model": source / "model.safetensors", "text": text}[changed], text.parent / "o"
    rounding = text.parent / "two-bits.yaml"
    rounding.write_text(RECIPE)

    def touch(now: str, done: int, total: int) -> None:
        if now.startswith(kind if stage == "training" else stage):
            os.utime(file)

    quick: Any = {**QUICK, "tokens": "256", "text": [str(text)], "output": out}
    rounded = QatOptions(**quick, recipe=rounding, calibration=text)
    with pytest.raises(InputError, match=f"{file.name}: changed while it was being read"):
        TRAININGS[kind](source, rounded if kind == "qat" else DistillOptions(**quick), touch)
    left = {one.name for one in text.parent.iterdir()}
    assert left <= {text.name, rounding.name, "o.checkpoints"}


def test_a_training_does_not_go_on_with_another_teacher(
    source: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = text.parent / "o"
    asked = DistillOptions(text=[str(text)], output=out, teacher=source, **QUICK)
    with pytest.raises(StoppedError):
        distill(source, asked, progress=stop)
    imported = student.import_dense

    def trained_on(*arguments: Any, **options: Any) -> ImportedModel:
        return replace(imported(*arguments, **options), source_digest="of other weights")

    monkeypatch.setattr("optc.compiling.training.distill.import_dense", trained_on)
    with pytest.raises(InputError, match="holds the checkpoints of a training with other settings"):
        distill(source, asked)


@pytest.mark.parametrize("read", ["model", "text", "teacher", "trained", "heldout"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_that_is_read_is_not_replaced(
    source: Path, text: Path, tmp_path: Path, read: str, linked: bool
) -> None:
    out = tmp_path / "before"
    shutil.copytree(source, out)
    (out / "training.json").write_text('{"schema": "optc.training.v1"}')
    (out / "text.txt").write_bytes(text.read_bytes())
    (tmp_path / "link").symlink_to("before")
    given: dict[str, Any] = {"text": [str(text)], "model": source}
    given[read] = out / "text.txt" if read in ("text", "heldout") else out
    given["text"] = [given["text"]] if read == "text" else [str(text)]
    model, place = given.pop("model"), tmp_path / "link" if linked else out
    with pytest.raises(InputError, match="lies in it, and would be lost"):
        distill(model, DistillOptions(**given, output=place, force=True, **QUICK))
    assert (out / "model.safetensors").is_file()


def test_experts_are_refused_before_the_passes() -> None:
    unlimited: Any = SimpleNamespace(limit=0)
    check = session.Session.check(unlimited, None, 1)
    pipeline: Any = None
    with pytest.raises(UnsupportedError, match="ExpertMatMul has no form in training") as told:
        check(expert_model(), pipeline, 0)
    assert "compile the result" in told.value.hint
