"""Every function body, run by ONNX Runtime, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from optc.ir.functions import (
    OPERATORS,
    ensure_function,
    function_text,
    is_op,
    make_node,
    prune_functions,
)
from optc.proof.reference.execution.attention import attention
from tests.support import oracle
from tests.support.ir_text import Array, f32
from tests.support.ragged import run


def empty_model() -> ir.Model:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23}, name="g")
    return ir.Model(graph, ir_version=10)


def call(op_type: str, inputs: Sequence[Array | None], **attributes: Any) -> list[Array]:
    """Outputs of one node; 4-bit operands are initializers, the others graph inputs."""
    model = empty_model()
    values: list[ir.Value | None] = []
    feeds = {}
    for index, array in enumerate(inputs):
        if array is None:
            values.append(None)
            continue
        tensor = ir.tensor(array, name=f"in{index}")
        value = ir.Value(
            name=f"in{index}", type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape)
        )
        if array.dtype.kind in "fiu":  # bfloat16 and 4-bit types are of another kind
            model.graph.inputs.append(value)
            feeds[f"in{index}"] = array
        else:
            value.const_value = tensor
            model.graph.register_initializer(value)
        values.append(value)
    outputs = [f"out{i}" for i in range(len(OPERATORS[op_type].outputs))]
    node = make_node(model, op_type, values, attributes, outputs=outputs)
    model.graph.append(node)
    model.graph.outputs.extend(node.outputs)
    return run(model, feeds)


def test_norms() -> None:
    x, scale = f32(2, 3, 8), f32(4)
    (got,) = call("HeadRMSNorm", [x, scale], num_heads=2, epsilon=1e-3)
    np.testing.assert_allclose(got, oracle.head_norm(x, scale, 2, 1e-3), rtol=1e-5, atol=1e-6)
    r, y, wide = f32(5, 8, seed=1), f32(5, 8, seed=2), f32(8)
    total, normed = call("AddRMSNorm", [r, y, wide], epsilon=1e-3)
    np.testing.assert_array_equal(total, r + y)
    np.testing.assert_allclose(normed, oracle.rms_norm(r + y, wide, 1e-3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [0, 1])
def test_heads_side_by_side(shared: int) -> None:
    a, b = f32(2, 3, 1 if shared else 4, 5), f32(2, 3, 4, 2, seed=1)
    operands = [a.reshape(2, 3, -1), b.reshape(2, 3, -1)]
    (got,) = call("HeadConcat", operands, num_heads=4, shared=shared)
    each = np.broadcast_to(a, (2, 3, 4, 5))
    np.testing.assert_array_equal(got, np.concatenate([each, b], -1).reshape(2, 3, -1))


@pytest.mark.parametrize("lead", [(2, 3), (5,)])
def test_heads_apart_and_together(lead: tuple[int, ...]) -> None:
    x = f32(*lead, 12)
    apart, numbers = call("SplitHeads", [x], num_heads=4)
    np.testing.assert_array_equal(apart, x.reshape(*lead, 4, 3))
    np.testing.assert_array_equal(numbers, np.broadcast_to(np.arange(4), (*lead, 4)))
    np.testing.assert_array_equal(call("MergeHeads", [apart])[0], x)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_gated_activation(name: str) -> None:
    x = 3 * f32(4, 10)
    (got,) = call("GatedActivation", [x], activation=name)
    np.testing.assert_allclose(got, oracle.gated(x, name), rtol=1e-5, atol=1e-5)
    q, s = call("GatedActivationQuantize", [x], activation=name)
    want_q, want_s = oracle.quantize_activation(got)
    np.testing.assert_allclose(s, want_s, rtol=1e-6)
    np.testing.assert_array_equal(q, want_q)


def test_clamped_gate() -> None:
    x, parts = 3 * f32(4, 10), {"alpha": 1.702, "limit": 2.0, "up_shift": 1.0}
    (got,) = call("GatedActivation", [x], activation="silu", **parts)
    np.testing.assert_allclose(got, oracle.gated(x, "silu", **parts), rtol=1e-5, atol=1e-5)
    for wrong in ({"activation": "gelu", "alpha": 2.0}, {"activation": "silu", "limit": -1.0}):
        with pytest.raises(ValueError, match="gate has limit"):
            function_text("GatedActivation", wrong)


@pytest.mark.parametrize(("half", "interleaved"), [(2, 0), (1, 0), (2, 1)])
def test_rotary_embedding(half: int, interleaved: int) -> None:
    x, angle = f32(3, 8), f32(3, half)
    cos, sin = np.cos(angle), np.sin(angle)
    attributes = {"num_heads": 2, "rotary_embedding_dim": 2 * half, "interleaved": interleaved}
    (got,) = call("RotaryEmbedding", [x, cos, sin], **attributes)
    want = oracle.rotary(x, cos, sin, 2, bool(interleaved))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_dense_attention(window: int, softcap: float) -> None:
    q, k, v = 2 * f32(2, 7, 24), 2 * f32(2, 7, 8), f32(2, 7, 6)
    shape = {"num_heads": 6, "kv_num_heads": 2, "scale": 0.4, "softcap": softcap, "window": window}
    (got,) = call("Attention", [q, k, v], **shape)
    want = [oracle.attention(q[b], k[b], v[b], 6, 2, 0.4, softcap, window) for b in range(2)]
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize(("window", "chunk"), [(0, 0), (3, 0), (0, 4), (3, 4)])
@pytest.mark.parametrize(("sunk", "leaning"), [(0, 1), (1, 0), (1, 1), (0, 0)])
def test_dense_attention_with_sinks_slopes_and_chunks(
    sunk: int, leaning: int, window: int, chunk: int, softcap: float
) -> None:
    q, k, v = 2 * f32(2, 7, 24), 2 * f32(2, 7, 8), f32(2, 7, 6)
    sinks, slopes = (f32(6) if sunk else None), (np.abs(f32(6, seed=1)) if leaning else None)
    shape = {"num_heads": 6, "kv_num_heads": 2, "scale": 0.4, "softcap": softcap, "window": window}
    (got,) = call("Attention", [q, k, v, sinks, slopes], **shape, chunk=chunk)
    for b in range(2):
        want = oracle.attention(
            *(x[b] for x in (q, k, v)),
            *(6, 2, 0.4, softcap, window),
            chunk=chunk,
            sinks=sinks,
            slopes=slopes,
        )
        np.testing.assert_allclose(got[b], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("window", "leaning"), [(0, False), (3, True)])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_dense_attention_with_biases_by_distance(count: int, window: int, leaning: bool) -> None:
    q, k, v = 2 * f32(2, 7, 24), 2 * f32(2, 7, 8), f32(2, 7, 6)
    sinks, slopes = (f32(6), np.abs(f32(6, seed=1))) if leaning else (None, None)
    biases = f32(6, count, seed=2)
    shape = {"num_heads": 6, "kv_num_heads": 2, "scale": 0.4, "softcap": 0.0, "window": window}
    operands = [q, k, v, sinks, slopes, biases]
    (got,) = call("Attention", operands, **shape)
    given = [None if x is None else torch.from_numpy(x) for x in operands]
    reference = attention(given, shape).numpy()
    for b in range(2):
        want = oracle.attention(
            *(x[b] for x in (q, k, v)),
            *(6, 2, 0.4, 0.0, window),
            sinks=sinks,
            slopes=slopes,
            distance_bias=biases,
        )
        np.testing.assert_allclose(got[b], want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reference[b], want, rtol=1e-5, atol=1e-6)


def test_defaults_are_not_stated() -> None:
    shape = {"num_heads": 2, "kv_num_heads": 2, "scale": 1.0, "softcap": 0.0, "window": 0}
    assert function_text("Attention", shape) == function_text("Attention", {**shape, "chunk": 0})
    model = empty_model()
    values = [ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT)) for name in "qkv"]
    assert "chunk" not in make_node(model, "Attention", values, {**shape, "chunk": 0}).attributes
    assert (
        make_node(model, "Attention", values, {**shape, "chunk": 8}).attributes["chunk"].value == 8
    )
    with pytest.raises(ValueError, match=r"chunk=1.5 is not <class 'int'>"):
        function_text("Attention", {**shape, "chunk": 1.5})


def test_quantize_activation_is_exact() -> None:
    x = 4 * f32(3, 5, 16)
    x[1, 2] = 0
    x[0, 0] = [127, 0.5, 1.5, -2.5, *[1] * 12]  # ties to even
    q, s = call("QuantizeActivation", [x])
    want_q, want_s = oracle.quantize_activation(x)
    np.testing.assert_array_equal(s, want_s)
    np.testing.assert_array_equal(q, want_q)
    assert q[0, 0, :4].tolist() == [127, 0, 2, -2]
    assert s[1, 2] == 1
    assert not q[1, 2].any()


def test_activations_of_16_bits() -> None:
    x, r, scale = 4 * f32(5, 16), f32(5, 16, seed=1), f32(16)
    x[2] = 0
    x[0, 0] = 1000
    q, s = call("QuantizeActivation", [x], bits=16)
    assert q.dtype == np.int16
    assert q[0, 0] == 32512  # 255 * 127 + 127: two of 8 bits
    for got, want in zip((q, s), oracle.quantize_activation(x, 16), strict=True):
        np.testing.assert_array_equal(got, want)
    total, normed = call("AddRMSNorm", [r, x, scale], epsilon=1e-5)
    got = call("AddRMSNormQuantize", [r, x, scale], epsilon=1e-5, bits=16)
    for have, want in zip(got, (total, *oracle.quantize_activation(normed, 16)), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=have.dtype == np.int16)
    weight = np.random.default_rng(0).integers(-127, 128, (16, 3)).astype(np.int8)
    w_scale = np.array([0.5, 0.1, 2], np.float32)
    (y,) = call("QuantizedMatMul", [q, s, weight, w_scale], bits=8, group_size=0)
    exact = (q * s.astype(np.float64)) @ (weight * w_scale.astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-4)


def test_norms_with_quantization() -> None:
    x, r, scale = f32(4, 16), f32(4, 16, seed=1), f32(16)
    (normed,) = call("HeadRMSNorm", [x, scale], num_heads=1, epsilon=1e-5)
    for got, want in zip(
        call("RMSNormQuantize", [x, scale], epsilon=1e-5),
        oracle.quantize_activation(normed),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    total, normed = call("AddRMSNorm", [r, x, scale], epsilon=1e-5)
    for got, want in zip(
        call("AddRMSNormQuantize", [r, x, scale], epsilon=1e-5),
        (total, *oracle.quantize_activation(normed)),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def quantized_weight(
    bits: int, group: int, symmetric: bool, k: int = 64, n: int = 5
) -> tuple[Array, Array, Array | None]:
    rng = np.random.default_rng([bits, group])
    low, high = (-(1 << bits - 1), 1 << bits - 1) if symmetric else (0, 1 << bits)
    kinds = {
        (8, True): np.int8,
        (8, False): np.uint8,
        (4, True): ml_dtypes.int4,
        (4, False): ml_dtypes.uint4,
    }
    kind = kinds[bits, symmetric]
    shape = (k // group, n) if group else (n,)
    weight = rng.integers(low, high, (k, n)).astype(kind)
    zero = None if symmetric else rng.integers(low, high, shape).astype(kind)
    return weight, rng.uniform(0.01, 0.1, shape).astype(np.float32), zero


SCHEMES = [(8, 0, True), (8, 32, True), (8, 32, False), (4, 32, True), (4, 16, False)]


@pytest.mark.parametrize(("bits", "group", "symmetric"), SCHEMES)
@pytest.mark.parametrize("bias", [False, True])
def test_quantized_matmul(bits: int, group: int, symmetric: bool, bias: bool) -> None:
    weight, scale, zero = quantized_weight(bits, group, symmetric)
    q, s = oracle.quantize_activation(f32(3, 64))
    added = f32(5) if bias else None
    (got,) = call(
        "QuantizedMatMul", [q, s, weight, scale, zero, added], bits=bits, group_size=group
    )
    want = (q.astype(np.float64) @ oracle.dequantize(weight, scale, zero)) * s
    np.testing.assert_allclose(got, want + (0 if added is None else added), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("bits", "group", "symmetric"), SCHEMES)
@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_quantized_gather(bits: int, group: int, symmetric: bool, shape: tuple[int, ...]) -> None:
    weight, scale, zero = quantized_weight(bits, group, symmetric)
    tokens = np.array([4, 0, 4, 2][: int(np.prod(shape))], np.int32).reshape(shape)
    (got,) = call("QuantizedGather", [tokens, weight, scale, zero], bits=bits, group_size=group)
    want = oracle.dequantize(weight, scale, zero).T[tokens]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_quantized_matmul_with_integer_scales(bias: bool) -> None:
    weight, groups, _ = quantized_weight(4, 32, False)
    integers = np.random.default_rng(3).integers(1, 17, groups.shape).astype(np.uint8)
    scale = np.random.default_rng(4).uniform(0.01, 0.1, 5).astype(np.float32)
    q, s = oracle.quantize_activation(f32(3, 64))
    added = f32(5) if bias else None
    zero = np.random.default_rng(5).integers(0, 129, groups.shape).astype(np.uint8)
    spaced = weight.astype(np.int64) * integers.repeat(32, 0) - zero.repeat(32, 0)
    dense = spaced.astype(np.float64) * scale
    (got,) = call(
        "QuantizedMatMul", [q, s, weight, scale, zero, added, integers], bits=4, group_size=32
    )
    want = (q.astype(np.float64) @ dense) * s + (0 if added is None else added)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    tokens = np.array([[4, 0], [4, 2]], np.int32)
    (rows,) = call(
        "QuantizedGather", [tokens, weight, scale, zero, integers], bits=4, group_size=32
    )
    np.testing.assert_allclose(rows, dense.T[tokens], rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_quantized_matmul_with_float_zero_points(bias: bool) -> None:
    weight, scale, _ = quantized_weight(4, 32, False)
    zero = np.random.default_rng(6).uniform(-3, 20, scale.shape).astype(np.float32)
    q, s = oracle.quantize_activation(f32(3, 64))
    added = f32(5) if bias else None
    dense = (weight.astype(np.float64) - zero.repeat(32, 0)) * scale.repeat(32, 0)
    (got,) = call("QuantizedMatMul", [q, s, weight, scale, zero, added], bits=4, group_size=32)
    want = (q.astype(np.float64) @ dense) * s + (0 if added is None else added)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    tokens = np.array([[4, 0], [4, 2]], np.int32)
    (rows,) = call("QuantizedGather", [tokens, weight, scale, zero], bits=4, group_size=32)
    np.testing.assert_allclose(rows, dense.T[tokens], rtol=1e-5, atol=1e-6)


def test_bf16_matmul() -> None:
    x, weight, bias = f32(3, 8), f32(8, 5).astype(ml_dtypes.bfloat16), f32(5)
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    (got,) = call("Bf16MatMul", [x, weight, bias])
    np.testing.assert_allclose(
        got, rounded @ weight.astype(np.float64) + bias, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("shape", [(3, 48), (2, 2, 16)])
def test_block_fp4_matmul(shape: tuple[int, ...]) -> None:
    """Blocks of all sizes: one of zeros, one whose scale underflows, one beyond the range."""
    width = shape[-1]
    x = f32(*shape)
    x[..., :16] *= 40.0
    x.reshape(-1, width)[0, :16] = 0.0
    x.reshape(-1, width)[1, :16] *= 1e-9
    values = oracle.e2m1(4 * f32(width, 5))
    scales = np.exp(f32(width // 16, 5)).astype(ml_dtypes.float8_e4m3fn)
    w_global, x_global = np.array(0.03, np.float32), np.array(0.004, np.float32)
    bias = f32(5)
    doubled = (2 * values).astype(np.int8)
    (got,) = call("BlockFp4MatMul", [x, doubled, scales, w_global, x_global, bias])
    weight = values * np.repeat(scales.astype(np.float64), 16, axis=0) * w_global
    want = oracle.nvfp4(x, 0.004) @ weight + bias
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_rounding_of_block_fp4_is_that_of_the_type() -> None:
    """Every halfway case and what lies beside it, against the type's own conversion."""
    halves = (oracle.E2M1[1:] + oracle.E2M1[:-1]) / 2
    cases = np.concatenate([halves, halves * 1.01, halves * 0.99, oracle.E2M1])
    x = np.zeros((len(cases), 16), np.float32)
    x[:, 0], x[:, 1] = 6.0, -cases  # the block's scale is 1
    own = (-cases).astype(np.float32).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    np.testing.assert_array_equal(oracle.e2m1(-cases), own)
    one, unit = np.ones((1, 1), ml_dtypes.float8_e4m3fn), np.array(1, np.float32)
    pick = np.zeros((16, 1), np.int8)
    pick[1] = 2
    (got,) = call("BlockFp4MatMul", [x, pick, one, unit, unit])
    np.testing.assert_array_equal(got[:, 0], own)


@pytest.mark.parametrize("group", [0, 16])
@pytest.mark.parametrize("biased", [False, True])
def test_codebook_matmul(group: int, biased: bool) -> None:
    x, table = f32(3, 32), f32(16)
    codes = (np.arange(32 * 5) * 7 % 16).reshape(32, 5).astype(np.uint8)
    scale = np.abs(f32(2, 5) if group else f32(5)) + np.float32(0.1)
    bias = [f32(5)] if biased else []
    inputs = [x, codes, table, scale, *bias]
    (got,) = call("CodebookMatMul", inputs, format="nf4", group_size=group)
    wide = np.repeat(scale, 16, axis=0) if group else scale
    want = x.astype(np.float64) @ (table[codes].astype(np.float64) * wide)
    want += bias[0] if biased else 0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_bf16_gather(shape: tuple[int, ...]) -> None:
    weight = f32(8, 5).astype(ml_dtypes.bfloat16)
    tokens = np.array([4, 0, 4, 2][: int(np.prod(shape))], np.int32).reshape(shape)
    (got,) = call("Bf16Gather", [tokens, weight])
    np.testing.assert_array_equal(got, weight.astype(np.float32).T[tokens])


def test_functions_are_shared_by_configuration() -> None:
    model = empty_model()
    one = ensure_function(model, "AddRMSNorm", {"epsilon": 1e-5})
    assert ensure_function(model, "AddRMSNorm", {"epsilon": 1e-5}) == one
    assert ensure_function(model, "AddRMSNorm", {"epsilon": 1e-6}) != one
    assert len(model.functions) == 2
    assert model.opset_imports["optc"] == 1
    prune_functions(model)
    assert not model.functions


def test_layers_share_the_function_of_paged_attention() -> None:
    shape = {"num_heads": 2, "kv_num_heads": 1, "scale": 1.0, "softcap": 0.0, "window": 0}
    names = {
        function_text(
            "PagedAttention",
            {**shape, "group": group, "layer": layer, "kv_dtype": "int8", "query_bits": 0},
        )[0]
        for group in (0, 1)
        for layer in (0, 1, 2)
    }
    assert len(names) == 2


def test_optional_inputs_choose_the_overload() -> None:
    attributes = {"bits": 8, "group_size": 0}
    with_bias, _ = function_text("QuantizedMatMul", attributes)
    without, text = function_text("QuantizedMatMul", attributes, [True] * 4)
    assert with_bias != without
    assert "bias, w_group_scale)" in text  # the formal input stays, the body does not use it
    assert "Add" not in text


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
def test_every_body_is_a_valid_function(op_type: str) -> None:
    example = {
        "window": 3,
        "softcap": 2.0,
        "bits": 8,
        "activation": "silu",
        "rotary_embedding_dim": 4,
        "scoring": "sigmoid",
        "group_score": "top2_sum",
        "mode": "mean",
    }
    kinds = OPERATORS[op_type].attributes
    attributes = {name: example.get(name, kind(4)) for name, kind in kinds.items()}
    _, text = function_text(op_type, attributes)
    function = onnx.parser.parse_function(text)
    onnx.checker.check_function(function)
    assert list(function.attribute) == list(kinds)


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optc::AddRMSNorm takes \['epsilon'\], got \[\]"):
        function_text("AddRMSNorm", {})
    with pytest.raises(ValueError, match="epsilon=1 is not"):
        function_text("AddRMSNorm", {"epsilon": 1})
    with pytest.raises(ValueError, match="needs inputs scale"):
        function_text("AddRMSNorm", {"epsilon": 1e-5}, [True, True])
    with pytest.raises(ValueError, match="takes at most 3 inputs"):
        function_text("AddRMSNorm", {"epsilon": 1e-5}, [True] * 4)
    with pytest.raises(ValueError, match="activation 'relu' is not one of"):
        function_text("GatedActivation", {"activation": "relu"})


def test_is_op_looks_at_the_domain() -> None:
    value = ir.Value(name="x")
    node = ir.Node("optc", "Attention", [value, value, value])
    assert is_op(node, "Attention", domain="optc")
    assert not is_op(node, "Attention")
    assert not is_op(None, "Attention")
