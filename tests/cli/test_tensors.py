"""Models of named tensors by command."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from optc.cli.inputs import tensors_run
from optc.compiling.parts.judging import measure_parts
from optc.errors import EngineError, InputError
from optc.system.hardware.machine import this_machine
from tests.cli.conftest import Optc
from tests.importer.tensors.test_onnx_source import WEIGHT, proto
from tests.support.ir_text import f32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(proto(["batch", 4]), tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def test_the_commands(file: Path, tmp_path: Path, optc: Optc) -> None:
    made = optc("compile", file, "-o", tmp_path / "a", "--dim", "batch=2..4", "--json")
    assert made.code == 0
    assert {one["name"]: one["passed"] for one in made.json["gates"]}["output_error"] is True
    np.savez(tmp_path / "x.npz", x=f32(3, 4))
    call = ("run", tmp_path / "a", "--inputs", tmp_path / "x.npz")
    ran = optc(*call, "--output", tmp_path / "y.npz", "--json")
    assert ran.json["outputs"]["y"]["shape"] == [3, 3]
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["y"], f32(3, 4) @ WEIGHT, rtol=1e-5, atol=1e-6)
    assert "y: float32 [3, 3]" in optc(*call).out
    assert optc("verify", tmp_path / "a").code == 0
    assert optc("inspect", tmp_path / "a", "--json").json["manifest"]["task"]["name"] == "tensors"
    for words in (("run", "--prompt", "x"), ("eval", "--text", file)):
        told = optc(words[0], tmp_path / "a", *words[1:])
        assert told.code == 2, told.err
        assert "where steps are needed" in told.err


def test_values_at_which_the_model_fails_are_the_file_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arrays: object) -> None:
        raise EngineError("9 is beyond the table", where="toy")

    np.savez(tmp_path / "x.npz", x=np.array([9]))
    monkeypatch.setattr(
        tensors_run, "load_tensors", lambda *_, **__: nullcontext(SimpleNamespace(run=run))
    )
    with pytest.raises(InputError, match=r"x\.npz: .* at these inputs: 9 is beyond the table"):
        tensors_run.run_tensors(tmp_path, tmp_path / "x.npz", None, None, as_json=False)


@pytest.mark.parametrize("text", ["batch", "batch=x", "batch=4..2", "1=2..3", "=1..2"])
def test_dimensions_that_are_none(file: Path, text: str, optc: Optc) -> None:
    told = optc("compile", file, "--dim", text)
    assert told.code == 2
    assert "--dim" in told.err or "dimension" in told.err


@pytest.fixture
def pair(file: Path, tmp_path: Path, optc: Optc) -> tuple[Path, Path]:
    """Two artifacts of one interface, of which the second has other weights."""
    made = proto(["batch", 4])
    weights = made.graph.initializer[0]
    made.graph.node[0].output[0] = made.graph.output[0].name = "other"  # compared by position
    weights.CopyFrom(numpy_helper.from_array(WEIGHT * np.float32(1.01), weights.name))
    onnx.save(made, tmp_path / "other.onnx")
    for source, name in ((file, "a"), (tmp_path / "other.onnx", "b")):
        assert optc("compile", source, "-o", tmp_path / name, "--dim", "batch=1..8").code == 0
    return tmp_path / "a", tmp_path / "b"


def test_calls_are_measured_and_judged(pair: tuple[Path, Path], optc: Optc) -> None:
    how = ("--rounds", "2", "--concurrency", "1,8,16")
    found = optc("bench", pair[0], *how, "--json", "--require", "items_per_s>0").json
    assert found["task"] == "tensors"
    assert [(one["concurrency"], one["calls"]) for one in found["results"]] == [(1, 2), (8, 2)]
    assert found["warnings"] == ["16 at once are left out: a call has 1 to 8 rows"]
    assert all(one["items_per_s"] > 0 for one in found["results"])
    assert {one["passed"] for one in found["conditions"]} == {True}
    assert "calls of rows" in optc("bench", pair[0], *how).out
    assert optc("bench", pair[0], *how, "--require", "latency_ms.p50<0").code == 4
    told = optc("bench", pair[0], "--concurrency", "9")
    assert (told.code, "a call has 1 to 8 rows, not 9" in told.err) == (2, True)
    told = optc("bench", pair[0], "--workload", "poisson:rate=1")
    assert (told.code, "--workload: is of generators of text" in told.err) == (2, True)


def test_outputs_and_speed_of_two_are_compared(pair: tuple[Path, Path], optc: Optc) -> None:
    a, b = pair
    found = optc("diff", a, b, "--outputs", "--speed", "--rounds", "2", "--json").json
    assert found["outputs"]["sqnr_db"] == pytest.approx(40, abs=0.1)
    assert found["outputs"]["output_error"] == pytest.approx(0.01, rel=1e-3)
    assert found["outputs"]["cosine_mean"] == pytest.approx(1)
    assert [one["metric"] for one in found["speed"]] == ["items_per_s", "call_ms"]
    assert optc("diff", a, a, "--outputs", "--json").json["outputs"]["output_error"] == 0
    shown = optc("diff", a, b, "--outputs", "--require", "outputs.output_error<=0.001")
    assert shown.code == 4
    assert "B's outputs" in shown.out
    told = optc("diff", a, b, "--require", "outputs.output_error<=0.1")
    assert (told.code, "add --outputs" in told.err) == (2, True)
    told = optc("diff", a, b, "--inputs", a)
    assert (told.code, "needs --outputs or --speed" in told.err) == (2, True)


def test_a_plan_says_what_a_compile_would_do(file: Path, tmp_path: Path, optc: Optc) -> None:
    made = optc("plan", file, "--gate", "sqnr_db=30", "--json").json
    assert (made["model"], made["task"]) == ("product", "tensors")
    (part,) = made["parts"]
    assert part["inputs"] == [{"name": "x", "dtype": "float32", "dims": ["batch", 4]}]
    assert part["operators"]["MatMul"] == 1
    assert part["weight_bytes"] >= WEIGHT.nbytes
    told = optc("plan", file, "--recipe", "auto").out
    assert all(name in told for name in ("tensors-fp32", "vision-int8", "pass pack-rows"))
    (one,) = optc("plan", file, "--json").json["recipes"]
    assert (one["recipe"], one["gates"]["output_error"]) == ("tensors-fp32", 0.0001)
    assert one["engines"] == {"onnxruntime for native": ""}
    assert list(tmp_path.iterdir()) == [file]
    for words, message in (
        (("--max-context", "64"), "--max-context: is of generators of text"),
        (("--gate", "kl_mean=1"), "kl_mean is no measure of the task 'tensors'"),
        (("--recipe", "int8-fused"), "for the task 'text-generation'"),
    ):
        refused = optc("plan", file, *words)
        assert (refused.code, message in refused.err) == (2, True), refused.err


def test_open_gates_are_measured_later(
    file: Path, tmp_path: Path, optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an engine that was compiled where it does not run."""
    place = "optc.compiling.parts.judging.this_machine"
    elsewhere = SimpleNamespace(misfit=lambda target: "another processor")
    monkeypatch.setattr(place, lambda: elsewhere)
    made = optc("compile", file, "-o", tmp_path / "a", "--dim", "batch=1..8", "--allow-unmeasured")
    assert made.code == 0, made.err
    monkeypatch.setattr(place, this_machine)
    onnx.save(proto(["batch", 4]), tmp_path / "same.onnx")
    call = ("verify", tmp_path / "a", "--gates", "--reference")
    changes = "optc.compiling.tensors.verify.measure_parts"

    def slow(*arguments: Any) -> Any:
        os.utime(tmp_path / "same.onnx")
        return measure_parts(*arguments)

    monkeypatch.setattr(changes, slow)
    told = optc(*call, tmp_path / "same.onnx")
    assert (told.code, "changed while it was being read" in told.err) == (2, True), told.err
    monkeypatch.setattr(changes, measure_parts)
    found = optc(*call, tmp_path / "same.onnx", "--json")
    assert found.code == 0, found.err
    gates = {one["name"]: one for one in found.json["gates"]}
    assert gates["output_error"]["passed"] is True
    assert "random inputs" in found.json["warnings"][0]
    report = optc("inspect", tmp_path / "a", "--json").json["report"]
    assert {one["passed"] for one in report["gates"] if one["name"] == "output_error"} == {True}
    assert report["verified"][0]["engines"] == ["target"]
    other = proto(["batch", 4])
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT * np.float32(2), "w"))
    onnx.save(other, tmp_path / "other.onnx")
    told = optc(*call, tmp_path / "other.onnx")
    assert (told.code, "is not what" in told.err) == (2, True), told.err
    assert optc("compile", file, "-o", tmp_path / "b").code == 0
    told = optc("verify", tmp_path / "b", "--gates", "--reference", file)
    assert (told.code, "no gate is without a verdict" in told.err) == (0, True)
