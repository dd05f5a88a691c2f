"""Quantized operators become weights that TensorRT dequantizes inside of its matmuls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tensorrt.dialect import problems
from optc.backends.tensorrt.legalize import legalize
from optc.backends.tensorrt.legalize.weight_only import WeightOnly
from optc.errors import UnsupportedError
from optc.ir.functions import make_node, operand
from optc.ir.graph import add_initializer, remove_unused
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from tests.backends.tensorrt.lowered import (
    LENGTH,
    Array,
    operators,
    ragged,
    run,
    slot_form,
    step_feeds,
)
from tests.support import oracle
from tests.support.families import FAMILIES
from tests.support.ir_text import f32, model_of


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ("{bits=4,group_size=32}", {"int4 in blocks of 32", "int8 per channel", "embedding int8"}),
        ("{bits=8}", {"int8 per channel", "embedding int8"}),
    ],
)
@pytest.mark.parametrize("family", ["llama", "olmo2"])
def test_quantized_recipes_become_weight_only(options: str, kinds: set[str], family: str) -> None:
    shape = replace(FAMILIES[family], hidden=64, inner=96, tied=True)
    model = ragged(shape, f",quantize-weights{options},fuse-norm-quantize")
    reference = slot_form(model)
    runs = {run.name: run.report for run in legalize(model, LENGTH).runs}
    report = runs["tensorrt-weight-only"]
    assert set(report.details) == kinds
    assert report.facts["activations_no_longer_quantized"] > 0
    assert "QuantizeLinear" not in operators(model)
    assert list(problems(model, ("sm_80",))) == []
    # the reference quantizes its activations to 8 bits, the engine does not
    feeds = step_feeds(reference, [0, 7, 20], 4, 60, LENGTH)
    got, want = run(model, feeds)[0], run(reference, feeds)[0]
    error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
    assert 0.0 < error < 0.03


@pytest.mark.parametrize("scales", ["float", "int"])
def test_weights_with_zero_points_are_refused_with_the_recipe_that_has_none(scales: str) -> None:
    options = f"{{bits=4,group_size=32,symmetric=false,group_scales={scales}}}"
    model = ragged(FAMILIES["llama"], f",quantize-weights{options}")
    with pytest.raises(UnsupportedError, match="TensorRT takes no weights") as caught:
        legalize(model, LENGTH)
    assert "as the recipe trt-int4 does" in str(caught.value)


def _weights(name: str, rows: Array, scales: Array, bits: int, group: int) -> QuantizedRows:
    """A quantized weight given by its values [N, K] and scales."""

    def read(start: int, stop: int) -> QuantizedTile:
        return QuantizedTile(rows[start:stop], scales[start:stop], None)

    return QuantizedRows(read, *rows.shape, bits, group, True, name)


def _linear(
    model: ir.Model, quantized: ir.Node, weight: QuantizedRows, bias: ir.Value | None
) -> None:
    """Make the model's only output the product of the last two outputs of ``quantized`` with
    ``weight``."""
    matmul = make_node(
        model,
        "QuantizedMatMul",
        [
            *quantized.outputs[-2:],
            add_initializer(model.graph, weight.values(), "values"),
            add_initializer(model.graph, weight.scales(), "scales"),
            None,
            bias,
        ],
        {"bits": weight.bits, "group_size": weight.group_size},
        outputs=["y"],
        name="linear",
    )
    model.graph.append(matmul)
    model.graph.outputs[:] = [matmul.outputs[0]]
    remove_unused(model)


@pytest.mark.parametrize(("bits", "group"), [(4, 16), (8, 0)])
def test_a_quantized_matmul_is_the_product_with_the_dequantized_weight(
    bits: int, group: int
) -> None:
    rng = np.random.default_rng(1)
    limit = 8 if bits == 4 else 127
    rows = rng.integers(-limit, limit, (24, 32)).astype(np.int8)
    scales = rng.random((24, 2) if group else 24).astype(np.float16).astype(np.float32) + 0.1
    signature = "g (float[T,32] x, float[24] b) => (int8[T,32] q, float[T,1] s)"
    model = model_of(signature, "q, s = optc.QuantizeActivation (x)")
    weight = _weights("w", rows, scales, bits, group)
    _linear(model, model.graph[0], weight, model.graph.inputs[1])
    report = WeightOnly().run(model)
    assert report.facts == {"activations_no_longer_quantized": 1}
    assert operators(model) == ["DequantizeLinear", "MatMul", "Add"]
    dequantize = model.graph[0].attributes
    assert dequantize.get_int("block_size", 0) == group
    assert dequantize.get_int("axis") == (0 if group else 1)
    x, b = f32(5, 32), f32(24)
    wide = scales.repeat(16, axis=1) if group else scales[:, None]
    want = x.astype(np.float64) @ (rows * wide.astype(np.float64)).T + b
    (got,) = run(model, {"x": x, "b": b})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("fused", "kinds"),
    [
        ("q, s = optc.RMSNormQuantize <epsilon: float = 0.5> (x, w)", ["RMSNormalization"]),
        ("t, q, s = optc.AddRMSNormQuantize <epsilon: float = 0.5> (r, x, w)", ["AddRMSNorm"]),
        (
            'q, s = optc.GatedActivationQuantize <activation: string = "silu"> (x)',
            ["GatedActivation"],
        ),
    ],
)
def test_operators_that_quantized_their_result_give_it_as_it_is(
    fused: str, kinds: list[str]
) -> None:
    width = 8 if "Gated" in fused else 16
    signature = (
        "g (float[B,S,16] r, float[B,S,16] x, float[16] w) => (int8[B,S,N] q, float[B,S,1] s)"
    )
    model = model_of(signature, fused)
    rows = np.random.default_rng(2).integers(-127, 127, (4, width)).astype(np.int8)
    _linear(model, model.graph[0], _weights("w", rows, f32(4), 8, 0), None)
    WeightOnly().run(model)
    assert operators(model) == [*kinds, "DequantizeLinear", "MatMul"]
    r, x, w = f32(1, 2, 16), f32(1, 2, 16, seed=1), f32(16)
    if "Gated" in fused:
        values = oracle.gated(x, "silu")
    else:
        values = oracle.rms_norm(r + x if "Add" in fused else x, w, 0.5)
    want = values @ (rows * f32(4).astype(np.float64)[:, None]).T
    (got,) = run(model, {"r": r, "x": x, "w": w})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_integer_scales_without_zero_points_are_refused() -> None:
    """No pass of ours makes them; a graph from elsewhere might, and they must not be dropped."""
    rows = np.random.default_rng(3).integers(-8, 8, (8, 32)).astype(np.int8)
    signature = "g (float[T,32] x) => (int8[T,32] q, float[T,1] s)"
    model = model_of(signature, "q, s = optc.QuantizeActivation (x)")
    _linear(model, model.graph[0], _weights("w", rows, f32(8, 1), 4, 32), None)
    matmul = model.graph[-1]
    matmul.resize_inputs(7)
    scales = ir.Tensor(np.ones((1, 8), np.uint8))
    matmul.replace_input_with(6, add_initializer(model.graph, scales, "integers"))
    assert operand(matmul, "w_zero_point") is None
    assert operand(matmul, "w_group_scale") is not None
    with pytest.raises(UnsupportedError, match="TensorRT takes no weights"):
        WeightOnly().run(model)
