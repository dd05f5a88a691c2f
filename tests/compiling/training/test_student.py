"""Students: what a recipe's first passes leave, and whom they may learn from."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from optc.compiling.training.student import check_vocabulary, pruned_student, rounded_student
from optc.errors import InputError
from optc.ir.pipeline.pipeline import Pipeline
from optc.system.options.training_options import QatOptions
from optc.system.progress import no_progress
from tests.support.models import Dense, dense_model


def unchecked(dense: ir.Model, pipeline: Pipeline, place: int) -> None:
    """Nothing is refused."""


def test_both_need_one_vocabulary() -> None:
    ours, theirs = dense_model(Dense()), dense_model(Dense(vocab=50))
    assert check_vocabulary(ours, ours, "--teacher") == 61
    with pytest.raises(InputError, match="--teacher: the teacher knows 50 tokens, the student 61"):
        check_vocabulary(ours, theirs, "--teacher")


def test_what_passes_settle_holds_for_rounding(source: Path, text: Path) -> None:
    """Formats that allocate-bits chooses are those that training rounds to."""
    options = ["allocate-bits.windows=4", "allocate-bits.window_tokens=64"]
    options += ["propagate-errors.windows=4", "propagate-errors.window_tokens=64"]
    options += ["quantize-weights.group_size=32"]
    asked = QatOptions(recipe="mixed-4", calibration=text, set=options)
    student, rounded = rounded_student(source, asked, no_progress, unchecked)
    assert "layer_bits=" in student.pipeline
    assert any(node.op_type == "QuantizedMatMul" for node in rounded.graph)
    assert not any(node.op_type == "QuantizedMatMul" for node in student.model.graph)


def test_without_a_recipe_the_student_is_the_model(source: Path) -> None:
    student = pruned_student(source, QatOptions(), no_progress, unchecked)
    assert student.pipeline == "canonicalize"
    assert [n.name for n in student.model.graph] == [n.name for n in student.source.graph]
