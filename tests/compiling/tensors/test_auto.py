"""``recipe="auto"`` of models of named tensors: the best recipe that holds, by function and by
command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper, numpy_helper

import optc
from optc.artifact.pages.artifact_page import artifact_page
from optc.artifact.pages.sections.subject import Subject
from optc.cli.main import run
from optc.errors import GateError, InputError
from tests.support.ir_text import f32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(n, 1, ["batch", 64]) for n in "xy"]
    weight = numpy_helper.from_array(f32(64, 64), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def test_the_smallest_that_holds_is_found_and_shown(file: Path, tmp_path: Path) -> None:
    samples = [{"x": f32(2, 64)}]
    how: dict[str, Any] = {"inputs": samples, "objective": "size", "gate": ["sqnr_db=40"]}
    artifact = optc.compile(file, "auto", tmp_path / "a", **how)
    report = artifact.report()
    ladder = report["ladder"]
    held = {r["recipe"]: r for r in ladder["rungs"] if r["outcome"] in ("chosen", "held")}
    sizes = {name: rung["measured"]["artifact_bytes"] for name, rung in held.items()}
    assert ladder["chosen"] == min(sizes, key=lambda name: sizes[name])
    assert artifact.manifest.recipe["name"] == ladder["chosen"]
    assert {"tensors-fp32", "vision-fp16"} <= sizes.keys()
    left_out = {r["recipe"]: r["why"] for r in ladder["rungs"] if r["outcome"] == "left out"}
    assert "pass pack-rows" in left_out["encoder-int8"]
    with optc.load_tensors(artifact.path) as engine:
        assert engine(x=f32(3, 64))["y"].shape[0] == 3
    page = artifact_page(Subject(artifact.manifest, report, None, "")).text
    assert "the smallest artifact was chosen" in page


def test_where_none_holds_all_is_told(file: Path, tmp_path: Path) -> None:
    with pytest.raises(GateError, match="no recipe holds inference_speedup=1e"):
        optc.compile(file, "auto", tmp_path / "a", gate=["inference_speedup=1e9"])
    assert [path.name for path in tmp_path.iterdir()] == ["product.onnx"]


def test_a_gate_of_another_task_is_refused(file: Path, tmp_path: Path) -> None:
    for recipe in ("auto", "tensors-fp32"):
        with pytest.raises(InputError, match="class_agreement is no measure of the task 'tensors'"):
            optc.compile(file, recipe, tmp_path / "a", gate=["class_agreement=0.9"])
    with pytest.raises(InputError, match="objective: is for recipe='auto'"):
        optc.compile(file, "tensors-fp32", tmp_path / "a", objective="size")


def test_the_command_prints_the_ladder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    assert run(["compile", str(file), "--recipe", "auto", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "ladder for speed, sqnr_db=25" in printed
    assert "times float32" in printed
    assert (out / "manifest.json").is_file()


def test_weights_beside_a_file_are_found_by_every_recipe(tmp_path: Path) -> None:
    """Large and small ones: exporters put all of them into one file."""
    ends = [
        helper.make_tensor_value_info("x", 1, ["batch", 8, 8, 8]),
        helper.make_tensor_value_info("y", 1, ["batch", 8, 4, 4]),
    ]
    weights = {"a": f32(8, 8, 3, 3), "ab": f32(8), "b": f32(8, 8, 3, 3, seed=1)}
    nodes = [
        helper.make_node("Conv", ["x", "a", "ab"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        model,
        folder / "m.onnx",
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
    )
    artifact = optc.compile(folder / "m.onnx", "auto", tmp_path / "a", gate=["sqnr_db=20"])
    tried = {r["recipe"]: r["outcome"] for r in artifact.report()["ladder"]["rungs"]}
    assert {tried[name] for name in ("tensors-fp32", "vision-int8")} <= {"chosen", "held"}
    for path in folder.iterdir():
        path.unlink()
    with optc.load_tensors(artifact.path) as engine:
        assert engine(x=f32(3, 8, 8, 8))["y"].shape == (3, 8, 4, 4)


def test_gates_of_other_tasks_are_no_gates_of_the_model(file: Path, tmp_path: Path) -> None:
    """A recipe has gates of several tasks; a manifest only those of its own."""
    artifact = optc.compile(file, "products-int8", tmp_path / "a", no_gates=True)
    names = {gate.name for gate in artifact.manifest.gates}
    assert names
    assert names <= set(artifact.manifest.task.gates)
