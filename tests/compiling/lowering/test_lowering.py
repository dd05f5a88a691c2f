"""What passes warn of reaches the compile; what they settle holds for some layers too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import pytest

from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.compiling.lowering.lowering import Lowered, lower, lower_dense
from optc.errors import InputError
from optc.ir.linear import find_linears
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.entries import read_pipeline
from optc.ir.pipeline.phase import Phase
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from optc.system.progress import no_progress
from tests.passes.prune.structured.on_letters import pruning
from tests.support import dense_models
from tests.support.letters import letters_folder


@dataclass(frozen=True)
class ImportedAsDense(Pass):
    """Stands for what leads to the dense form."""

    name: ClassVar[str] = "canonicalize"
    phase: ClassVar[Phase] = Phase.CANONICAL

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        return PassReport(count=1)


def test_first_layers_get_the_formats_of_the_whole_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_models, "D", 64)
    monkeypatch.setattr(dense_models, "FF", 96)
    model = dense_models.dense_model(2)
    names = [
        f"l{i}.{part}" for i in range(2) for part in ("q", "k", "v", "o", "gate", "up", "down")
    ]
    formats = tuple(f"{name}={'3g32' if name[1] == '0' else '2g32'}" for name in names)
    settled = {"quantize-weights.layer_bits": (*formats, "head=5g32")}
    whole = PassRecord(0, "allocate-bits", "", 0.0, PassReport(count=9, settled=settled))
    quantize = QuantizeWeights(bits=4, group_size=32, symmetric=False, group_scales="int")
    allocate = AllocateBits(text="text", folder="folder")
    pipeline = Pipeline((allocate, quantize))
    options: Any = SimpleNamespace(recipe=SimpleNamespace(pipeline=pipeline))
    keep_first_layers(model, 1)
    first, second = lower_dense(model, options, [whole])
    assert first.report.details == {"given": 5}
    assert second.report.details == {
        "int3 groups of 32 asymmetric, integer": 7,
        "int5 groups of 32 asymmetric, integer": 1,
        "embedding shares the head": 1,
    }
    assert not any(name in second.spec for name in names if name[1] == "1")
    bits = {
        node.attributes["bits"].as_int()
        for node in model.graph
        if node.op_type == "QuantizedMatMul"
    }
    assert bits == {3, 5}


def test_first_layers_are_pruned_as_the_whole_model_was(tmp_path: Path) -> None:
    """Both are lowered from one dense form; the whole's statistics stay as they are."""
    passes = (
        ImportedAsDense(),
        pruning(letters_folder(tmp_path), "prune-heads", target="0.84x"),
        pruning(tmp_path, "prune-width", multiple=8),
    )
    recipe = SimpleNamespace(pipeline=Pipeline(passes))
    options: Any = SimpleNamespace(
        recipe=recipe,
        max_ram_bytes=0,
        progress=no_progress,
        asked=SimpleNamespace(bisect=False, dump_dir=None),
    )
    model = dense_models.dense_model(3)
    whole = lower(model, options)
    digest = calibration_of(model).digest()
    part = whole.reference.clone()
    keep_first_layers(part, 2)
    (tmp_path / "text.txt").unlink()
    text = {"text": "", "folder": str(tmp_path)}
    recipe.pipeline = Pipeline((passes[0], *(one.with_options(text) for one in passes[1:])))
    runs = lower_dense(part, options, whole.runs)
    assert runs[1].report.details == {"neurons": 2 * 24}
    rest = {one.name: one.weight for one in find_linears(model)}
    for linear in find_linears(part)[:-1]:
        rows = linear.weight.rows_shape[0]
        wanted = rest[linear.name].read_rows(0, rows)
        np.testing.assert_array_equal(linear.weight.read_rows(0, rows), wanted)
    assert calibration_of(model).digest() == digest
    assert calibration_of(part) is not calibration_of(model)


def test_warnings_are_those_of_passes_that_found_nothing_and_of_their_reports() -> None:
    runs = (
        PassRecord(0, "fuse-x", "fuse-x", 0.1, PassReport(), "pass fuse-x: nothing"),
        PassRecord(1, "calibrate", "calibrate", 0.1, PassReport(warnings=["short", "odd"])),
        PassRecord(2, "kv-cache", "kv-cache", 0.1, PassReport()),
    )
    lowered = Lowered(dense_models.dense_model(1), dense_models.dense_model(1), runs, "spec")
    assert lowered.warnings == (
        "pass fuse-x: nothing",
        "pass calibrate: short",
        "pass calibrate: odd",
    )


def test_a_vocabulary_that_the_reference_would_not_have_is_refused() -> None:
    pipeline = read_pipeline(["canonicalize", "fuse-qkv", "vocab-trim"], registry)
    options: Any = SimpleNamespace(recipe=SimpleNamespace(pipeline=pipeline, name="mine"))
    with pytest.raises(InputError) as caught:
        lower(dense_models.dense_model(1), options)
    assert caught.value.render() == (
        "recipe mine: pass vocab-trim comes behind fuse-qkv, and gates would compare other tokens "
        "(put it directly behind canonicalize)"
    )
