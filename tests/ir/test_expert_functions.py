"""Bodies of the operators of mixtures of experts, run by ONNX Runtime, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from optc.ir.functions import function_text
from tests.ir.test_functions import SCHEMES, call, quantized_weight
from tests.support import oracle
from tests.support.experts.oracle import ROUTING, expert_matmul, route
from tests.support.ir_text import Array, f32

ROUTINGS: list[dict[str, Any]] = [
    {"scoring": "softmax"},
    {"scoring": "softmax", "normalize": 1, "scale": 2.5},
    {"scoring": "sigmoid", "normalize": 1, "norm_epsilon": 1e-2},
    {"scoring": "softmax_after"},
    {"scoring": "softmax_after", "scale": 0.5},
    {"scoring": "sigmoid_after", "normalize": 1, "norm_epsilon": 1e-2},
    {"scoring": "softmax", "groups": 4, "top_groups": 2, "group_score": "max", "scale": 16.0},
    {"scoring": "sigmoid", "groups": 4, "top_groups": 2, "group_score": "top2_sum", "normalize": 1},
]


@pytest.mark.parametrize("how", ROUTINGS)
@pytest.mark.parametrize("corrected", [False, True])
def test_router(how: dict[str, Any], corrected: bool) -> None:
    logits, bias = 2 * f32(2, 3, 16), 0.3 * f32(16) if corrected else None
    attributes = {**ROUTING, "normalize": 0, **how, "top_k": 5}
    weights, experts = call("TopKRouter", [logits, bias], **attributes)
    want, chosen = route(logits, 5, bias, **how)
    np.testing.assert_array_equal(experts, chosen)
    np.testing.assert_allclose(weights, want, rtol=1e-5)


@pytest.mark.parametrize("how", [{"threshold": 0.5}, {"threshold": 0.1, "normalize": 1}])
def test_sparse_mixer(how: dict[str, Any]) -> None:
    logits = np.concatenate([2 * f32(2, 8, 16), np.zeros((2, 1, 16), np.float32)], axis=1)
    attributes = {**ROUTING, "normalize": 0, "scoring": "sparse_mixer", "scale": 2.5, **how}
    weights, experts = call("TopKRouter", [logits], **attributes, top_k=3)
    want, chosen = route(logits, 3, **attributes)
    np.testing.assert_array_equal(experts, chosen)
    np.testing.assert_allclose(weights, want, rtol=1e-5)


@pytest.mark.parametrize("more", [{"groups": 2}, {}])
def test_a_sparse_mixer_has_no_bias_and_no_groups(more: dict[str, int]) -> None:
    attributes = {**ROUTING, "top_k": 2, "scoring": "sparse_mixer", **more}
    with pytest.raises(ValueError, match="no correction bias and no groups"):
        function_text("TopKRouter", attributes, [True, not more])


def test_the_lower_index_is_first_among_equals() -> None:
    logits = np.zeros((2, 6), np.float32)
    logits[1, 4] = logits[1, 2] = 1
    _, experts = call("TopKRouter", [logits], **{**ROUTING, "top_k": 3})
    assert experts.tolist() == [[0, 1, 2], [2, 4, 0]]


def test_an_unknown_scoring_is_refused() -> None:
    with pytest.raises(ValueError, match="'softplus' of"):
        function_text("TopKRouter", {**ROUTING, "top_k": 1, "scoring": "softplus"})


def chosen(count: int, *lead: int) -> Array:
    rng = np.random.default_rng(count)
    rows = [rng.permutation(count)[:2] for _ in range(int(np.prod(lead)))]
    return np.array(rows, np.int32).reshape(*lead, 2)


@pytest.mark.parametrize("lead", [(1,), (5,), (2, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_matmul_by_experts(lead: tuple[int, ...], biased: bool) -> None:
    experts, weight = chosen(4, *lead), f32(7, 4 * 5)
    bias = f32(4 * 5) if biased else None
    for spread, x in ((1, f32(*lead, 7)), (0, f32(*lead, 2, 7))):
        (got,) = call("ExpertMatMul", [x, experts, weight, bias], num_experts=4, spread=spread)
        want = expert_matmul(x, experts, weight, 4, bias, spread=bool(spread))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_matmul_by_experts_in_bfloat16() -> None:
    x, experts, weight = f32(3, 7), chosen(4, 3), f32(7, 4 * 5)
    narrow = weight.astype(ml_dtypes.bfloat16)
    (got,) = call("Bf16ExpertMatMul", [x, experts, narrow], num_experts=4, spread=1)
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    want = expert_matmul(rounded, experts, narrow.astype(np.float32), 4, None, spread=True)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def float_weight(weight: Array, scale: Array, zero: Array | None, group: int) -> Array:
    rows, columns = weight.shape
    wide = weight.astype(np.float64).reshape(-1, group or rows, columns)
    if zero is not None:
        wide = wide - zero.astype(np.float64).reshape(-1, 1, columns)
    scaled: Array = wide * scale.reshape(-1, 1, columns)
    return scaled.reshape(rows, columns)


@pytest.mark.parametrize(("bits", "group", "symmetric"), SCHEMES)
@pytest.mark.parametrize("spread", [0, 1])
def test_matmul_by_quantized_experts(bits: int, group: int, symmetric: bool, spread: int) -> None:
    experts, bias = chosen(3, 4), f32(15)
    weight, scale, zero = quantized_weight(bits, group, symmetric, 64, 15)
    x = f32(4, 64) if spread else f32(4, 2, 64)
    q, s = oracle.quantize_activation(x)
    attributes = {"bits": bits, "group_size": group, "num_experts": 3, "spread": spread}
    operands = [q, s.astype(np.float32), experts, weight, scale, zero, bias]
    (got,) = call("QuantizedExpertMatMul", operands, **attributes)
    wide = float_weight(weight, scale, zero, group)
    want = expert_matmul(q * s, experts, wide, 3, bias, spread=bool(spread))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [6, 4, 2])
def test_matmul_by_experts_with_integer_scales(bits: int) -> None:
    rng = np.random.default_rng(bits)
    experts, x, scale = chosen(3, 4), f32(4, 64), rng.uniform(0.01, 0.1, 15).astype(np.float32)
    values = rng.integers(0, 1 << bits, (64, 15))
    factors = rng.integers(1, 85 >> (bits - 2) if bits > 2 else 85, (2, 15)).astype(np.uint8)
    zeros = rng.integers(0, 129, (2, 15)).astype(np.uint8)
    weight = values.astype(ml_dtypes.uint4 if bits == 4 else np.uint8)
    q, s = oracle.quantize_activation(x)
    attributes = {"bits": bits, "group_size": 32, "num_experts": 3, "spread": 1}
    operands = [q, s.astype(np.float32), experts, weight, scale, zeros, None, factors]
    (got,) = call("QuantizedExpertMatMul", operands, **attributes)
    grouped = values.reshape(2, 32, 15) * factors.astype(np.int64)[:, None]
    wide = ((grouped - zeros.astype(np.int64)[:, None]) * scale).reshape(64, 15)
    want = expert_matmul(q * s, experts, wide, 3, None, spread=True)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_matmul_by_experts_with_float_zero_points() -> None:
    rng, experts, x = np.random.default_rng(1), chosen(3, 4), f32(4, 64)
    values, scale = rng.integers(0, 16, (64, 15)), rng.uniform(0.01, 0.1, (2, 15))
    zeros = rng.uniform(-2, 18, (2, 15)).astype(np.float32)
    q, s = oracle.quantize_activation(x)
    weight = values.astype(ml_dtypes.uint4)
    operands = [q, s.astype(np.float32), experts, weight, scale.astype(np.float32), zeros, None]
    attributes = {"bits": 4, "group_size": 32, "num_experts": 3, "spread": 1}
    (got,) = call("QuantizedExpertMatMul", operands, **attributes)
    wide = (values - zeros.repeat(32, 0)) * scale.repeat(32, 0)
    want = expert_matmul(q * s, experts, wide, 3, None, spread=True)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_combination() -> None:
    y, weights = f32(2, 3, 4, 5), f32(2, 3, 4)
    (got,) = call("CombineExperts", [y, weights])
    np.testing.assert_allclose(got, (y * weights[..., None]).sum(-2), rtol=1e-5, atol=1e-6)
