"""Backends without kernels for what some decoders have say so by name."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from optc import registry
from optc.backend import StepBackend
from optc.errors import UnsupportedError
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.slots import KVSlots
from optc.system.hardware.target import parse_target
from tests.passes.kv_cache.test_cross_pools import decoder
from tests.support.families import FAMILIES, model_after
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense


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


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        ("tvm-cuda", "cuda:sm_90", "routers that score by sparse_mixer have no CUDA kernels"),
        ("onnxruntime", "native", None),
    ],
)
def test_sparse_mixers(backend: str, target: str, reason: str | None) -> None:
    how = ", ".join(
        [
            *("top_k: int = 2", 'scoring: string = "sparse_mixer"', "normalize: int = 0"),
            *("norm_epsilon: float = 0.0", "scale: float = 1.0", "groups: int = 1"),
            *("top_groups: int = 1", 'group_score: string = "max"', "threshold: float = 0.02"),
        ]
    )
    signature = "g (float[T,8] x) => (float[T,2] w, int32[T,2] e)"
    model = model_of(signature, f"w, e = optc.TopKRouter <{how}> (x)")
    assert reasons(backend, target, model) == ({reason} if reason else set())


BIASED = """
    h = Gather (table, input_ids)
    o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.5,
                        softcap: float = 0.0, window: int = 0> (h, h, h, , , biases)
    logits = MatMul (o, head)"""


def biased() -> ir.Model:
    """A decoder whose heads have biases by distance, in steps."""
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"
    weights = {"table": f32(10, 16), "biases": f32(2, 5), "head": f32(16, 10)}
    model = model_of(signature, BIASED, weights)
    KVCache().run(model)
    return model


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        ("tvm-cuda", "cuda:sm_90", "attention with biases by distance has no CUDA kernels"),
        ("onnxruntime", "native", "slots have no biases by distance"),
        ("tensorrt", "sm_90", "slots have no biases by distance"),
    ],
)
def test_biases_by_distance(backend: str, target: str, reason: str | None) -> None:
    assert reasons(backend, target, biased()) == ({reason} if reason else set())


def test_slots_have_no_biases() -> None:
    with pytest.raises(UnsupportedError, match="slots have no biases by distance"):
        KVSlots().run(biased())


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        ("tvm-cuda", "cuda:sm_90", "convolutions along the tokens have no CUDA kernels"),
        ("onnxruntime", "native", "slots have no room for the rows that convolutions read"),
        ("tensorrt", "sm_90", "PagedCausalConv has no form in TensorRT's operators"),
    ],
)
def test_convolutions(backend: str, target: str, reason: str | None) -> None:
    model = model_after("kv-cache", replace(FAMILIES["short convolutions"], hidden=64))
    assert reasons(backend, target, model) == ({reason} if reason else set())


@pytest.mark.parametrize(
    ("backend", "target", "reason"),
    [
        ("tvm", "native", None),
        ("tvm-cuda", "cuda:sm_90", "recurrences have no CUDA kernels"),
        ("onnxruntime", "native", "slots have no room for the states of linear attention"),
        ("tensorrt", "sm_90", "PagedLinearAttention has no form in TensorRT's operators"),
    ],
)
def test_recurrences(backend: str, target: str, reason: str | None) -> None:
    shape = Dense(windows=(0, 0), recurrences=("plain", ""), hidden=64)
    found = reasons(backend, target, model_after("kv-cache", shape))
    # TensorRT lacks the softplus of the decay, too
    assert (reason in found) if reason else not found
