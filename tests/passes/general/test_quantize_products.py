"""`quantize-products`: integers are multiplied, as an oracle in NumPy does it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.general.quantize_products import QuantizeProducts
from tests.support.ir_text import f32, model_of, nodes_text
from tests.support.ragged import run, run_exactly

WEIGHT = f32(16, 5)


def oracle(x: np.ndarray, weight: np.ndarray, bits: int = 8, block: int = 0) -> np.ndarray:
    """The product of rounded inputs and weights, in float64 (ONNX, DynamicQuantizeLinear)."""
    if block:
        signs = [[(-1) ** (i & j).bit_count() for j in range(block)] for i in range(block)]
        turn = np.kron(np.eye(len(weight) // block), np.array(signs) / np.sqrt(block))
        x, weight = (x @ turn).astype(np.float32), (turn.T @ weight).astype(np.float32)
    most = (1 << (bits - 1)) - 1
    scales = np.abs(weight).max(0).astype(np.float64) / most
    integers = np.rint(weight / scales.astype(np.float32))
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255)
    found: np.ndarray = ((codes - zero) @ integers) * scale * scales
    return found


def stated(text: str, body: str, weights: Mapping[str, np.ndarray]) -> ir.Model:
    model = model_of(text, body, dict(weights))
    BatchedTensors.describe(model).attach(model)
    return model


def rounded(model: ir.Model, **options: int) -> dict[str, int]:
    (record,) = Pipeline((QuantizeProducts(**options),)).run(model)
    return record.report.details


def test_the_text_and_the_numbers() -> None:
    model = stated("g (float[B,S,16] x) => (float[B,S,5] y)", "y = MatMul (x, w)", {"w": WEIGHT})
    assert rounded(model, block=0) == {"int8 per channel": 1}
    kinds = [node.op_type for node in model.graph]
    assert kinds == ["DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul", "Mul"]
    assert model.graph.outputs[0].name == "y"
    assert "w" not in model.graph.initializers
    x = f32(2, 3, 16, seed=2)
    np.testing.assert_allclose(run(model, {"x": x})[0], oracle(x, WEIGHT), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_keeps_its_bias_and_its_order(turned: int) -> None:
    weight, bias = (WEIGHT.T.copy() if turned else WEIGHT), f32(5, seed=4)
    model = stated(
        "g (float[B,16] x) => (float[B,5] y)",
        f"y = Gemm <transB: int = {turned}> (x, w, b)",
        {"w": weight, "b": bias},
    )
    assert rounded(model) == {"int8 per channel": 1}
    x = f32(3, 16, seed=3)
    wanted = oracle(x, WEIGHT, block=16) + bias
    np.testing.assert_allclose(run(model, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "asked", "block"), [(64, 64, 64), (96, 64, 32), (24, 64, 8), (128, 128, 128)]
)
def test_inputs_are_rotated_before_they_are_rounded(inputs: int, asked: int, block: int) -> None:
    weight = f32(inputs, 5)
    text = f"g (float[B,S,{inputs}] x) => (float[B,S,5] y)"
    model = stated(text, "y = MatMul (x, w)", {"w": weight})
    rounded(model, block=asked)
    x = f32(2, 3, inputs, seed=2)
    x[:, :, 3] *= 40  # one channel is an outlier
    (found,) = run_exactly(model, {"x": x})
    np.testing.assert_allclose(found, oracle(x, weight, 8, block), rtol=1e-3, atol=1e-2)
    exact = x.astype(np.float64) @ weight
    errors = [np.abs(one - exact).mean() for one in (found, oracle(x, weight))]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("inputs", [20, 33])
def test_widths_that_no_block_divides_are_not_rotated(inputs: int) -> None:
    weight = f32(inputs, 5)
    model = stated(f"g (float[B,{inputs}] x) => (float[B,5] y)", "y = MatMul (x, w)", {"w": weight})
    rounded(model)
    assert "Reshape" not in nodes_text(model)


def test_layers_of_one_input_round_it_once() -> None:
    model = stated(
        "g (float[B,16] x) => (float[B,5] y, float[B,5] z)",
        "y = MatMul (x, w)\n z = MatMul (x, v)",
        {"w": WEIGHT, "v": WEIGHT * 2},
    )
    assert rounded(model) == {"int8 per channel": 2}
    assert nodes_text(model).count("DynamicQuantizeLinear") == 1


def test_seven_bits() -> None:
    model = stated("g (float[B,16] x) => (float[B,5] y)", "y = MatMul (x, w)", {"w": WEIGHT})
    rounded(model, bits=7, block=0)
    x = f32(3, 16)
    np.testing.assert_allclose(run(model, {"x": x})[0], oracle(x, WEIGHT, 7), rtol=1e-4, atol=1e-5)
    for options in ({"bits": 6}, {"block": 48}):
        with pytest.raises(InputError, match="is not possible"):
            QuantizeProducts(**options)


@pytest.mark.parametrize(
    ("text", "body", "weights", "reason"),
    [
        (
            "g (float[B,16] x, float[16,5] w) => (float[B,5] y)",
            "y = MatMul (x, w)",
            {},
            "no constant matrix",
        ),
        ("g (float[B,4] x) => (float[B,5] y)", "y = MatMul (x, w)", {"w": f32(4, 5)}, "4 inputs"),
        (
            "g (float[B,16] x) => (float[B,5] y)",
            "y = Gemm <alpha: float = 2.0> (x, w)",
            {"w": WEIGHT},
            "alpha=2.0",
        ),
        (
            "g (float[16,B] x) => (float[B,5] y)",
            "y = Gemm <transA: int = 1> (x, w)",
            {"w": WEIGHT},
            "transA=1",
        ),
        (
            "g (float[3,B,16] x) => (float[3,B,5] y)",
            "y = MatMul (x, w)",
            {"w": f32(3, 16, 5)},
            "no constant matrix",
        ),
    ],
)
def test_what_stays(text: str, body: str, weights: dict[str, np.ndarray], reason: str) -> None:
    model = stated(text, body, weights)
    before = nodes_text(model)
    report = QuantizeProducts().run(model)
    assert (report.count, nodes_text(model)) == (0, before)
    assert reason in report.skipped[0]
