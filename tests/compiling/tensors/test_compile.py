"""Models of named tensors from source to a loaded artifact, by function and by command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import optc
from optc.errors import GateError, InputError, RequestError, UnsupportedError
from tests.importer.tensors.test_onnx_source import WEIGHT, proto
from tests.support.ir_text import f32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(proto(["batch", 4]), tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def gates(artifact: optc.artifact.artifact.Artifact) -> dict[str, Any]:  # type: ignore[name-defined]
    return {one["name"]: one["value"] for one in artifact.report()["gates"]}


def test_a_module_is_compiled_loaded_and_called(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
    artifact = optc.compile(
        module,
        "encoder-int8",
        tmp_path / "a",
        args=(torch.randn(4, 32),),
        dynamic={"input": {0: optc.Dim("rows", 1, 8)}},
    )
    assert artifact.manifest.task.name == "tensors"
    assert gates(artifact)["cosine_mean"] > 0.999
    with optc.load_tensors(artifact.path) as engine:
        assert [one.dims for one in engine.inputs] == [("rows", 32)]
        x = torch.randn(6, 32)
        (found,) = engine(x).values()
        with torch.no_grad():
            wanted = module.eval()(x).numpy()
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
        with pytest.raises(RequestError, match="rows, has 9 elements"):
            engine(torch.randn(9, 32))
        with pytest.raises(RequestError, match="'input' is given twice"):
            engine(x, input=x)
    with pytest.raises(RequestError, match="closed"):
        engine(x)


def test_a_source_that_changes_while_it_is_compiled_is_refused(file: Path, tmp_path: Path) -> None:
    def told(stage: str, done: int, total: int) -> None:
        if stage == "passes":
            onnx.save(proto(["batch", 5]), file)

    with pytest.raises(InputError, match="changed while it was being read"):
        optc.compile(file, output=tmp_path / "a", progress=told)
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_two_compiles_of_a_file_are_the_same_bytes(file: Path, tmp_path: Path) -> None:
    digests = {optc.compile(file, output=tmp_path / name).digest for name in "ab"}
    assert len(digests) == 1


def test_optc_load_gives_the_task_s_face(file: Path, tmp_path: Path) -> None:
    artifact = optc.compile(str(file), output=tmp_path / "a", dims=[optc.Dim("batch", 1, 9)])
    assert "random inputs" in artifact.report()["warnings"][0]
    with optc.load(artifact.path) as engine:
        assert isinstance(engine, optc.TensorEngine)
        x = f32(3, 4)
        np.testing.assert_allclose(engine(x=x)["y"], x @ WEIGHT, rtol=1e-5, atol=1e-6)


def test_a_failed_gate_leaves_nothing(file: Path, tmp_path: Path) -> None:
    sample = {"x": f32(2, 4)}
    with pytest.raises(GateError, match="cosine_mean: 1 is below the bound 2") as caught:
        optc.compile(file, output=tmp_path / "a", gate="cosine_mean=2", inputs=[sample])
    assert "FILE.npz judges by inputs" in caught.value.hint
    assert not any(word in caught.value.hint for word in ("eval_text", "eval-text", "bisect"))
    assert [path.name for path in tmp_path.iterdir()] == ["product.onnx"]


def test_bad_input_is_told(file: Path, tmp_path: Path) -> None:
    def refused(message: str, **how: Any) -> None:
        with pytest.raises((InputError, UnsupportedError), match=message):
            optc.compile(file, output=tmp_path / "a", **how)
        assert not (tmp_path / "a").exists()

    refused("max_context: concerns decoders of text", max_context=64)
    for name in ("int4-fused", "int8-fused"):
        refused(f"recipe '{name}' is for the task 'text-generation'", recipe=name)
    refused("takes encoders over packed rows", backend="tvm")
    refused("sample 0, input x: axis 1 has 5 elements", inputs=[{"x": f32(2, 5)}])
    refused("absent.npz: is no file of arrays", inputs=[tmp_path / "absent.npz"])


def test_decoders_take_none_of_this(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="args: is for models of named tensors"):
        optc.compile(tmp_path, args=(1,))
    with pytest.raises(InputError, match="recipe 'encoder-int8' is for the task 'tensors'"):
        optc.compile("examples/models/pycode", "encoder-int8", tmp_path / "a")


def test_an_operator_that_nobody_has_is_the_models_fault(tmp_path: Path) -> None:
    made = proto(["batch", 4])
    made.graph.node[0].domain = "nobody"
    made.opset_import.add(domain="nobody", version=1)
    with pytest.raises(UnsupportedError, match="ONNX Runtime does not take the graph"):
        optc.compile(made, output=tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_graphs_are_dumped_after_each_pass(file: Path, tmp_path: Path) -> None:
    optc.compile(file, "tensors-fp32", tmp_path / "a", dump_dir=tmp_path / "dumps")
    assert [path.name for path in (tmp_path / "dumps").iterdir()] == ["00-simplify.onnx.txt"]


def test_nodes_without_names_are_told_apart(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    torch.onnx.export(
        module, (torch.randn(2, 32),), tmp_path / "m.onnx", dynamo=True, verbose=False
    )
    model = onnx.load(tmp_path / "m.onnx")
    for node in model.graph.node:
        node.name = ""
    artifact = optc.compile(model, "encoder-int8", tmp_path / "a")
    (done,) = (one for one in artifact.manifest.passes if one.name == "quantize-products")
    assert done.count == 2
