"""A kept graph is the exported one, and its name is made of what it was exported from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaConfig, MistralConfig, PretrainedConfig

from optc.importer.tracing import kept_graphs
from optc.importer.tracing.kept_graphs import KeptGraph, pack, unpack


def _path(config: PretrainedConfig) -> Path | None:
    return KeptGraph(config, Path("folder"))._path


@pytest.mark.parametrize("fake", [False, True])
def test_a_graph_comes_back_without_values_of_weights(fake: bool) -> None:
    constant = ir.tensor(np.array([1.0, 2.0], np.float32), name="constant")
    weight = ir.Value(name="weight", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    if fake:
        with FakeTensorMode():
            weight.const_value = TorchTensor(torch.zeros(2), name="weight")
    given = ir.Value(name="constant", const_value=constant)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["B", 2]))
    add = ir.node("Add", [x, weight])
    scaled = ir.node("Mul", [add.outputs[0], given])
    graph = ir.Graph([x], scaled.outputs, nodes=[add, scaled], initializers=[weight, given])
    graph.opset_imports[""] = 23
    found = unpack(pack(ir.Model(graph, ir_version=10)))
    assert [node.op_type for node in found.graph] == ["Add", "Mul"]
    assert str(found.graph.inputs[0].shape) == "[B,2]"
    values = found.graph.initializers
    assert list(values) == ["weight", "constant"]
    assert values["weight"].const_value is None
    assert (values["weight"].dtype, str(values["weight"].shape)) == (ir.DataType.FLOAT, "[2]")
    held = values["constant"].const_value
    assert held is not None
    assert held.numpy().tolist() == [1.0, 2.0]
    content = pack(found)
    assert pack(unpack(content)) == content


def test_what_a_graph_is_exported_from_is_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    small: dict[str, Any] = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
    }
    same = _path(LlamaConfig(**small))
    assert same is not None
    named = LlamaConfig(**small)
    named._name_or_path = "/another/folder"
    assert _path(named) == same
    names = {same, _path(LlamaConfig(**(small | {"hidden_size": 24})))}
    names |= {_path(LlamaConfig(**small, rms_norm_eps=1e-5)), _path(MistralConfig(**small))}
    with monkeypatch.context() as patch:
        patch.setattr("optc.importer.tracing.kept_graphs.transformers.__version__", "0.0")
        names.add(_path(LlamaConfig(**small)))
    monkeypatch.setattr(kept_graphs, "code_digest", lambda: "other code")
    names.add(_path(LlamaConfig(**small)))
    assert len(names) == 6


def test_graphs_are_kept_for_others_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_graphs, "KEPT", 1)
    first, second = LlamaConfig(), MistralConfig()
    assert KeptGraph(first, tmp_path).read() is None
    KeptGraph(first, tmp_path).write(b"graph")
    assert KeptGraph(first, tmp_path).read() == b"graph"
    KeptGraph(second, tmp_path).write(b"another")
    assert len(list(tmp_path.iterdir())) == 1


class _Own(LlamaConfig):
    """As of a folder: the class is not one of transformers."""


@pytest.mark.parametrize(
    "config", [_Own(), LlamaConfig(auto_map={"AutoModelForCausalLM": "own.Model"})]
)
def test_code_of_a_models_folder_is_exported_each_time(
    config: PretrainedConfig, tmp_path: Path
) -> None:
    kept = KeptGraph(config, tmp_path)
    kept.write(b"graph")
    assert kept.read() is None
    assert list(tmp_path.iterdir()) == []
