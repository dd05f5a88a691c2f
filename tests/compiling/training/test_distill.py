"""`optc distill` on a tiny model: a student that a pass pruned, and one of all shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from optc.compiling.training import memory, session
from optc.compiling.training.distill import distill
from optc.compiling.training.student import import_dense
from optc.errors import InputError
from optc.importer.additions.trained import read_trained
from optc.importer.safetensors import read_header
from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.linear import find_linears
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.tensors import model_tensors
from optc.system.options.training_options import DistillOptions
from optc.system.progress import no_progress

QUICK: dict[str, Any] = {
    "tokens": "1536",
    "window": 32,
    "batch": 4,
    "threads": 1,
    "precision": "float32",
}


@dataclass(frozen=True)
class PruneTest(Pass):
    """Removes every second neuron of each MLP; with ``masks`` it sets weights to zero instead."""

    name: ClassVar[str] = "prune-test"
    phase: ClassVar[Phase] = Phase.STRUCTURE
    effects: ClassVar[Effect] = Effect.REMOVES_WEIGHTS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    masks: bool = False

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        report = PassReport()
        for linear in find_linears(model):
            if "mlp" not in linear.name:
                continue
            rows = linear.weight.read_rows(0, linear.weight.rows_shape[0]).copy()
            if self.masks:
                rows[:, ::2] = 0
            else:
                rows = rows[:, ::2] if "down" in linear.name else rows[::2]
            kept = np.ascontiguousarray(rows)
            tensor = ir.Tensor(np.ascontiguousarray(kept.T), name=linear.name)
            linear.initializer.const_value = tensor
            linear.initializer.shape = ir.Shape(tensor.shape.numpy())
            report.add("layer")
        return report


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    known = registry.passes() | {"prune-test": PruneTest}
    monkeypatch.setattr(registry, "passes", lambda: known)
    path = tmp_path / "pruned.yaml"
    path.write_text(
        "name: pruned\ndescription: d\nbackend: tvm\n"
        "pipeline: [canonicalize, prune-test, fuse-qkv, kv-cache]\ngates: {}\n"
    )
    return path


def test_a_student_with_fewer_neurons(source: Path, text: Path, recipe: Path) -> None:
    out = text.parent / "out"
    asked = DistillOptions(text=[str(text)], output=out, recipe=recipe, rate="5e-3", **QUICK)
    outcome = distill(source, asked)
    figures = outcome.figures
    assert figures["peak_anon_bytes"] > 1 << 20
    assert "peak_anon_bytes" not in json.loads((out / "training.json").read_text())
    assert figures["kl"] < 0.8 * figures["start_kl"]
    assert figures["steps"] == 12
    assert not figures["hugging_face"]
    assert not (out / "config.json").exists()
    assert not (text.parent / "out.checkpoints").exists()
    trained = read_trained(out)
    assert trained.tensors["model.layers.0.mlp.down_proj.weight"].shape == (32, 32)
    assert trained.stated["pipeline"] == "canonicalize,prune-test"


def test_a_student_of_all_shapes_is_a_hugging_face_folder(
    source: Path, text: Path, recipe: Path
) -> None:
    out = text.parent / "out"
    asked = DistillOptions(
        text=[str(text)], output=out, recipe=recipe, set=["prune-test.masks=true"], **QUICK
    )
    outcome = distill(source, asked)
    assert outcome.figures["hugging_face"]
    before, after = (read_header(one / "model.safetensors") for one in (source, out))
    assert {n: t.shape for n, t in before.items()} == {n: t.shape for n, t in after.items()}
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"
    assert (out / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    down = after["model.layers.1.mlp.down_proj.weight"].read_rows(0, 32)
    assert not down[:, ::2].any()
    assert down[:, 1::2].any()


def test_a_student_that_is_the_teacher_gains_nothing_and_says_so(source: Path, text: Path) -> None:
    out = text.parent / "out"
    asked = DistillOptions(text=[str(text)], output=out, **{**QUICK, "tokens": "256"})
    outcome = distill(source, asked)
    assert outcome.figures["best_step"] == 0
    assert "gained nothing" in outcome.warnings[0]
    model = import_dense(source, no_progress, allow_remote_code=False).model
    stored = read_trained(out).tensors
    for tensor in model_tensors(model):
        np.testing.assert_array_equal(
            stored[tensor.name].read_rows(0, tensor.shape[0]), tensor.rows()
        )


def test_what_is_refused_before_anything_is_read(tmp_path: Path, text: Path) -> None:
    missing, model = tmp_path / "none.txt", tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with pytest.raises(InputError, match="--text: no text to train on"):
        distill(model, DistillOptions())
    with pytest.raises(InputError, match=r"--text: no such file: .*none\.txt"):
        distill(model, DistillOptions(text=[str(missing)]))
    with pytest.raises(InputError, match=r"--heldout: no such file: .*none\.txt"):
        distill(model, DistillOptions(text=[str(text)], heldout=missing))
    with pytest.raises(InputError, match=r"there is something already \(take another folder\)"):
        distill(model, DistillOptions(text=[str(text)], output=tmp_path))
    (tmp_path / "training.json").write_text('{"schema": "optc.training.v1"}')
    with pytest.raises(InputError, match="or --force"):
        distill(model, DistillOptions(text=[str(text)], output=tmp_path))


def test_too_little_memory_is_refused_before_the_passes(
    source: Path, text: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_IMPORTED", 1 << 40)
    pruned: list[ir.Model] = []
    monkeypatch.setattr(PruneTest, "run", lambda self, model, context: pruned.append(model))
    out = text.parent / "o"
    asked = DistillOptions(text=[str(text)], output=out, max_ram="100GB", **QUICK)
    message = (
        "--max-ram: the training is predicted to need 1,0[0-9,]* bytes of memory, but "
        "100,000,000,000 are allowed"
    )
    with pytest.raises(InputError, match=message):
        distill(source, asked)
    unread = PassReport()
    unread.add("layer")

    def run(self: PruneTest, model: ir.Model, context: PassContext) -> PassReport:
        if not context.dry:
            pruned.append(model)
        return unread

    monkeypatch.setattr(PruneTest, "run", run)
    with pytest.raises(InputError, match=message):
        distill(source, replace(asked, recipe=recipe))
    assert not pruned
    assert not out.exists()


def test_more_memory_than_allowed_ends_it(
    source: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for check in ("check_training", "check_passes"):  # they would end it before it begins
        monkeypatch.setattr(session, check, lambda *arguments: None)
    asked = DistillOptions(text=[str(text)], output=text.parent / "o", max_ram=2048, **QUICK)
    with pytest.raises(InputError, match=r"--max-ram: the training took [\d,]+ bytes of memory"):
        distill(source, asked)


def test_a_size_that_is_none(source: Path, text: Path) -> None:
    asked = DistillOptions(text=[str(text)], output=text.parent / "o", max_ram="much")
    with pytest.raises(InputError, match="--max-ram: 'much' is not a size"):
        distill(source, asked)


def test_a_recipe_that_prunes_nothing(source: Path, text: Path) -> None:
    asked = DistillOptions(text=[str(text)], output=text.parent / "o", recipe="int8-fused")
    with pytest.raises(InputError, match="the recipe int8-fused prunes nothing"):
        distill(source, asked)
