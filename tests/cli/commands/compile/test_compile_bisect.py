"""`optc compile --bisect` names what was broken on purpose: pass, node and tensor."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.artifact.artifact import Artifact
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.ir.linear import Linear
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.passes.fuse import gate_up
from optc.passes.quantize import quantized_layers
from optc.proof.gates import measure
from optc.proof.gates.measure import GateReport, judge
from tests.cli.conftest import Optc, Outcome
from tests.support.stub import StubBackend, write_tiny_model

LAYERS = 4
BROKEN = "model.layers.2.self_attn.k_proj.weight"


@pytest.fixture(scope="module")
def deep_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of 0.15 move the logits, unlike those of a model that training begins with."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "deep", LAYERS, 0.15)


@pytest.fixture(scope="module")
def imported_deep(deep_model: Path) -> ImportedModel:
    return importer.import_model(deep_model)


@pytest.fixture
def compile_deep(
    optc: Optc,
    stub: StubBackend,
    deep_model: Path,
    imported_deep: ImportedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Outcome]:
    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        return dataclasses.replace(imported_deep, model=imported_deep.model.clone())

    monkeypatch.setattr(importer, "import_model", import_model)
    text = tmp_path / "text.txt"
    text.write_text("A text of letters, which the byte-level tokenizer takes one by one. " * 9)
    call = ("compile", deep_model, "-o", tmp_path / "a", "--eval-text", text, "--bisect")
    return lambda *arguments: optc(*call, *arguments)


def break_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scales of one layer's K are four times what they should be."""
    find_rows = quantized_layers.find_rows

    def broken(store: Any, linear: Any, scheme: Any, name: str) -> QuantizedRows | None:
        rows: QuantizedRows | None = find_rows(store, linear, scheme, name)
        if rows is None or name != "model.layers.2.self_attn.q_proj+k_proj+v_proj.weight":
            return rows
        first, last = 32, 48  # Q has 32 rows, K and V have 16

        def read(start: int, stop: int) -> QuantizedTile:
            tile = rows.read(start, stop)
            row = np.arange(start, stop)
            factor = np.where((row >= first) & (row < last), 4, 1).astype(np.float32)
            return tile._replace(scales=tile.scales * factor)

        return dataclasses.replace(rows, read=read)

    monkeypatch.setattr(quantized_layers, "find_rows", broken)


def test_a_broken_scale_of_one_layer_is_named(
    compile_deep: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(model: object, executable: object, windows: object, bounds: Any, **_: Any) -> Any:
        return GateReport((judge("kl_mean", 0.002, bounds["kl_mean"]),), {"tokens": 640})

    monkeypatch.setattr(measure, "measure_gates", fail)
    break_scale(monkeypatch)
    outcome = compile_deep("--recipe", "int8-fused", "--gate", "kl_mean=0.0015", "--json")
    assert outcome.code == 4
    assert not (tmp_path / "a").exists()
    assert outcome.json["error"]["kind"] == "gate"
    assert "--bisect" not in outcome.json["error"]["hint"], "it was asked for"
    found = outcome.json["bisect"]
    assert (found["pass"], found["block"], found["cause"]) == ("quantize-weights", 2, "weight")
    assert found["tensor"] == BROKEN
    assert found["node"] == "model.layers.2.self_attn.q_proj+k_proj+v_proj.weight.matmul"
    assert found["operator"] == "optc::QuantizedMatMul"
    assert found["outlier"]
    assert found["suspects"] == []
    assert found["sqnr_db"] < 15 < 30 < found["peers_db"]
    assert found["restored_db"] > 30
    assert found["kl_after"] > 3 * found["kl_before"]
    assert found["kl_restored"] < found["kl_after"] / 3
    names = [entry["name"] for entry in found["passes"]]
    assert names[0] == "canonicalize"
    assert names[-1] == "fuse-norm-quantize"
    by_layer = found["sqnr_by_layer"]
    assert found["engines"] == [{"name": "target", "measured_on": "engine", "kl": 0.002}]
    assert len(by_layer) == LAYERS
    assert min(by_layer[:2]) > max(by_layer[2:]) + 3


def test_a_bad_fusion_of_one_layer_is_named(
    compile_deep: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gate and up change places in layer 1; what follows takes halves as they come."""
    merge_linears = gate_up.merge_linears

    def swapped(graph: ir.Graph, parts: Any) -> Any:
        wrong: list[Linear] = list(parts)
        if "layers.1." in wrong[0].name:
            wrong.reverse()
        return merge_linears(graph, wrong)

    monkeypatch.setattr(gate_up, "merge_linears", swapped)
    found = compile_deep("--recipe", "fp32", "--no-gates", "--json").json["bisect"]
    assert (found["pass"], found["block"], found["cause"]) == ("fuse-gate-up", 1, "node")
    assert found["operator"] == "optc::GatedActivation"
    assert found["tensor"] == found["value"]
    assert found["kl_before"] < 1e-6 < found["kl_after"]
    assert found["sqnr_db"] < 10
    assert found["peers_db"] == 100, "exact"
    assert found["outlier"]


def test_nothing_is_named_where_no_pass_changes_what_is_computed(
    compile_deep: Callable[..., Outcome],
) -> None:
    outcome = compile_deep("--recipe", "fp32", "--no-gates")
    assert outcome.code == 0
    assert "none changes what is computed" in outcome.out
    assert re.search(r"SQNR by layer, dB +100, 100, 100, 100\n", outcome.out)


def test_people_read_it_in_tables_and_the_artifact_keeps_it(
    compile_deep: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # lines that are not folded
    break_scale(monkeypatch)
    outcome = compile_deep("--recipe", "int8-fused", "--no-gates")
    assert outcome.code == 0, "nothing was judged"
    assert "after each pass" in outcome.out
    assert re.search(rf"tensor +the weight {re.escape(BROKEN)}: in float, ", outcome.out)
    assert "(layer 2, optc::QuantizedMatMul)" in outcome.out
    assert Artifact.open(tmp_path / "a").report()["bisect"]["tensor"] == BROKEN
