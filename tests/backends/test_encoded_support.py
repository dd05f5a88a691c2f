"""Backends without kernels for a decoder that attends to an encoder say so by name."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc import registry
from optc.backend import StepBackend
from optc.passes.kv_cache.kv_cache import KVCache
from optc.system.hardware.target import parse_target
from tests.passes.kv_cache.test_cross_pools import decoder
from tests.support.ir_text import model_of


def reasons(backend: str, target: str, model: ir.Model) -> set[str]:
    """Why nodes are not supported."""
    found = registry.backend(backend)
    assert isinstance(found, StepBackend)
    supports = [found.supports(node, parse_target(target)) for node in model.graph]
    return {one.reason for one in supports if one.how == "unsupported"}


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        ("tvm-cuda", "cuda:sm_90", "attention to an encoder has no CUDA kernels"),
        ("onnxruntime", "native", "slots have no room for the states of an encoder"),
        ("tensorrt", "sm_90", "PagedCrossAttention has no form in TensorRT's operators"),
    ],
)
def test_attention_to_an_encoder(backend: str, target: str, reason: str | None) -> None:
    model = decoder()
    KVCache().run(model)
    assert reasons(backend, target, model) == ({reason} if reason else set())


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        (
            "tvm-cuda",
            "cuda:sm_90",
            "fused layer norms have no CUDA kernels: leave fuse-layer-norm out",
        ),
        ("onnxruntime", "native", "it computes no fused layer norms: leave fuse-layer-norm out"),
    ],
)
def test_fused_layer_norms(backend: str, target: str, reason: str | None) -> None:
    text = "s, n = optc.AddLayerNorm <epsilon: float = 1e-5> (x, y, scale)"
    signature = "g (float[T,8] x, float[T,8] y, float[8] scale) => (float[T,8] s, float[T,8] n)"
    assert reasons(backend, target, model_of(signature, text)) == ({reason} if reason else set())
