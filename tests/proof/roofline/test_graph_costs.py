"""Costs that backends over slots state before they build, against numbers counted by hand."""

from __future__ import annotations

import pytest

from optc import registry
from optc.backend import BuildOptions
from optc.errors import UnsupportedError
from optc.proof.roofline.estimate import (
    EngineEstimate,
    EstimatingBackend,
    decode_work,
    prefill_work,
)
from optc.system.hardware.target import parse_target
from tests.support.experts.models import Experts, expert_model
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

SHAPE = Dense(hidden=64, heads=4, kv_heads=2, head_dim=16, rotary_dim=16, inner=96, vocab=80)
STEP = "fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary"
LAYERS = 2
#: Values of a layer's QKV, output, gate and up, and down.
LAYER = 64 * (64 + 2 * 32) + 64 * 64 + 64 * 192 + 96 * 64
HEAD = 64 * 80
#: What of the last layer lies behind its attention: on rows whose logits are wanted only.
LATE = 64 * 64 + 64 * 192 + 96 * 64
#: Multiply-adds of a row's attention for each token that it sees.
PAIRS = LAYERS * 4 * (16 + 16)


def estimate(backend: str, target: str, more: str = "") -> EngineEstimate:
    model = dense_model(SHAPE)
    pipeline_of(STEP + more).run(model)
    found = registry.backend(backend)
    assert isinstance(found, EstimatingBackend)
    options = BuildOptions(max_context=48, max_rows=16, max_sequences=4)
    return found.estimate(model, parse_target(target), options)


def decode_bytes(found: EngineEstimate) -> float:
    return found.costs.bytes_of(decode_work(found.spec, 20))


@pytest.mark.parametrize(
    ("backend", "target", "more", "peak", "bytes_per_weight", "kv"),
    [
        ("onnxruntime", "native", "", "fp32", 4.0, 4),
        ("onnxruntime", "native", ",cast-weights", "fp32", 4.0, 4),
        ("onnxruntime", "sm_90", "", "fp16", 2.0, 2),
        ("tensorrt", "sm_89", "", "fp16", 2.0, 2),
        ("tensorrt", "sm_89", ",cast-weights", "bf16", 2.0, 2),
    ],
)
def test_float_weights(
    backend: str, target: str, more: str, peak: str, bytes_per_weight: float, kv: int
) -> None:
    """A decode step reads every weight once, its sequence's keys and values, a row of the table."""
    found = estimate(backend, target, more)
    weights = LAYERS * LAYER + HEAD
    least = bytes_per_weight * weights + kv * 20 * LAYERS * 2 * 2 * 16
    assert least <= decode_bytes(found) <= least + 4 * 64 + 8 * 48
    assert found.costs.peak == peak
    assert found.spec.kv_layout == "slots"
    ops = found.costs.ops_of(prefill_work(found.spec, 20))
    rows = 20 * (LAYERS * LAYER - LATE) + LATE + HEAD
    assert ops == 2 * rows + 2 * PAIRS * (20 * 21 // 2)


def test_int4_weights_count_their_scales() -> None:
    spec = ",quantize-weights{bits=4,group_size=32,symmetric=true,head=false}"
    float_head = 4 * HEAD
    ort = estimate("onnxruntime", "native", spec)
    assert ort.costs.kernels["matmul int8"].bytes["1"] == LAYERS * LAYER * (0.5 + 4 / 32)
    assert ort.costs.kernels["matmul fp32"].bytes["1"] == float_head
    assert ort.costs.kernels["matmul int8"].ops["T"] == 2 * (LAYERS * LAYER - LATE)
    trt = estimate("tensorrt", "sm_89", spec)
    assert trt.costs.kernels["matmul fp16"].bytes["1"] == (
        LAYERS * LAYER * (0.5 + 2 / 32) + 2 * HEAD
    )
    assert trt.weight_bytes > trt.costs.kernels["matmul fp16"].bytes["1"]


def test_what_cannot_be_legalized_has_no_estimate() -> None:
    with pytest.raises(UnsupportedError, match="no weights with zero points"):
        estimate("tensorrt", "sm_89", ",quantize-weights{bits=4,group_size=32,symmetric=false}")


def test_experts_count_as_rows_choose_them() -> None:
    model = expert_model(SHAPE, Experts(count=6, chosen=2))
    pipeline_of(STEP + ",quantize-weights{head=false}").run(model)
    found = registry.backend("onnxruntime")
    assert isinstance(found, EstimatingBackend)
    options = BuildOptions(max_context=48, max_rows=16, max_sequences=4)
    cost = found.estimate(model, parse_target("native"), options).costs.kernels["experts fp32"]
    expert = 64 * 192 + 96 * 64  # int8, and a scale for each output
    expert_bytes = expert + 4 * (192 + 64)
    assert cost.calls == 2 * LAYERS
    # the last layer's on rows whose logits are wanted
    assert cost.bytes == {"T:2of6": expert_bytes, "R:2of6": expert_bytes}
    assert cost.ops == {"T": 2 * 2 * expert, "R": 2 * 2 * expert}
