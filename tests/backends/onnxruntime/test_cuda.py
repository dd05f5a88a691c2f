"""Engines for CUDA targets, as far as a machine without a GPU can tell.

ONNX Runtime has float16 kernels for the CPU, on which the same model runs; the CUDA provider itself
is not started here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from optc.backend import EngineBuild
from optc.backends.onnxruntime import BACKEND
from optc.backends.onnxruntime.build import build_engine
from optc.backends.onnxruntime.loader import load_engine, open_lowered
from optc.errors import UnavailableError, UnsupportedError
from optc.system.hardware.target import parse_target
from tests.backends.onnxruntime.engines import FAMILIES, OPTIONS, Driver
from tests.support.families import FUSED, model_after
from tests.support.models import dense_model
from tests.support.ragged import RaggedDriver, run_dense

#: Families whose attention no operator for CUDA takes.
UNFUSABLE = ("odd heads", "sinks", "alibi", "chunks")
FUSABLE = [name for name in FAMILIES if name not in UNFUSABLE]


def build(family: str, spec: str, folder: Path) -> EngineBuild:
    model = model_after(spec, FAMILIES[family])
    return build_engine(model, parse_target("cuda:sm_90"), folder, OPTIONS)


@pytest.mark.parametrize("family", FUSABLE)
def test_the_float16_model_is_near_the_dense_one(family: str, tmp_path: Path) -> None:
    found = build(family, FUSED, tmp_path)
    assert found.lowered_onnx == tmp_path / "model.onnx"
    assert found.computes_in == "float16"
    assert {layer.dtype for layer in found.spec.layers} == {"float16"}
    driver = Driver(open_lowered(tmp_path / "model.onnx", found.spec, 1))
    tokens = list(range(20))
    logits = [driver.step({0: tokens[:12]}, {0: 1}), driver.step({0: tokens[12:]}, {})]
    want = run_dense(dense_model(FAMILIES[family]), tokens)
    assert np.abs(np.concatenate(logits) - want).max() < 0.01 * np.abs(want).max()


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_models_keep_their_weights(bits: int, tmp_path: Path) -> None:
    spec = f"{FUSED},quantize-weights{{bits={bits},group_size=32,symmetric=false}}"
    found = build("llama", spec, tmp_path)
    tokens = list(range(20))
    model = model_after(spec, FAMILIES["llama"])
    want = RaggedDriver(model).step({0: tokens})
    engine = open_lowered(tmp_path / "model.onnx", found.spec, 1)
    got = Driver(engine).step({0: tokens}, {0: 2})
    assert np.linalg.norm(got - want) < 0.03 * np.linalg.norm(want)


def test_every_float_is_float16_and_shapes_are_inferred(tmp_path: Path) -> None:
    build("qwen3", f"{FUSED},quantize-weights{{bits=4,group_size=32}}", tmp_path)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    types = {t.data_type for t in model.graph.initializer}
    assert onnx.TensorProto.FLOAT not in types
    assert onnx.TensorProto.FLOAT16 in types
    slots = [v for v in model.graph.input if v.name.startswith("past_")]
    assert {v.type.tensor_type.elem_type for v in slots} == {onnx.TensorProto.FLOAT16}
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    assert [str(d) for d in session.get_outputs()[0].shape] == ["B", "R", "61"]


@pytest.mark.parametrize("family", UNFUSABLE)
def test_attention_without_a_cuda_kernel_is_refused(family: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="there is no other for CUDA"):
        build(family, FUSED, tmp_path)


def test_without_the_gpu_package_loading_says_why(tmp_path: Path) -> None:
    found = build("llama", FUSED, tmp_path)
    assert found.requires == {"onnxruntime-gpu": ">=1.31"}
    assert BACKEND.takes(parse_target("cuda:sm_90")) == ""
    with pytest.raises(UnavailableError, match="onnxruntime-gpu is not installed"):
        load_engine(tmp_path, found.spec, found.backend_data, 1)
