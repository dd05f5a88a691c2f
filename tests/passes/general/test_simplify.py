"""`simplify`: exact rewrites of onnxscript, under the names that inputs and outputs had."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.forms.batched import BatchedTensors
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.general.simplify import Simplify
from tests.support.ir_text import f32, model_of, nodes_text
from tests.support.ragged import run


def test_a_batch_norm_goes_into_the_convolution_before_it() -> None:
    names = ("scale", "bias", "mean")
    weights = {"w": f32(4, 2, 3, 3), **{n: f32(4, seed=i) for i, n in enumerate(names)}}
    model = model_of(
        "g (float[B,2,8,8] x) => (float[B,4,6,6] y)",
        "c = Conv (x, w)\n y = BatchNormalization (c, scale, bias, mean, variance)",
        {**weights, "variance": np.abs(f32(4, seed=9)) + 0.5},
    )
    BatchedTensors.describe(model).attach(model)
    x = f32(3, 2, 8, 8, seed=5)
    (before,) = run(model, {"x": x})
    (record,) = Pipeline((Simplify(),)).run(model)
    assert record.report.details == {"batch norms folded": 1}
    assert [node.op_type for node in model.graph] == ["Conv"]
    np.testing.assert_allclose(run(model, {"x": x})[0], before, rtol=1e-4, atol=1e-5)


def test_constants_are_folded_and_the_output_keeps_its_name() -> None:
    model = model_of(
        "g (float[2,3] x) => (float[2,3] y)",
        "s = Shape (x)\n z = ConstantOfShape (s)\n a = Add (x, z)\n y = Relu (a)",
    )
    BatchedTensors.describe(model).attach(model)
    (record,) = Pipeline((Simplify(),)).run(model)
    assert record.report.details["nodes gone"] >= 1
    assert "Shape (x)" not in nodes_text(model)
    assert model.graph.outputs[0].name == "y"
    x = f32(2, 3)
    np.testing.assert_array_equal(run(model, {"x": x})[0], np.maximum(x, 0))


@pytest.mark.parametrize(
    "text",
    [
        "y = Add (x, c)",
        "y = Add (c, x)",
        "y = Sub (x, c)",
        "a = Mul (x, c)\n b = Add (a, c)\n y = Log (b)",
        "a = Mul (x, x)\n b = Add (a, c)\n y = Sqrt (b)",
    ],
)
@pytest.mark.parametrize("value", [1e-10, -1e-9, 1e-30])
def test_a_small_constant_is_no_zero(text: str, value: float) -> None:
    """Guards of logarithms and roots are as small as that."""
    constants = {
        "c": np.array(abs(value) if "Log" in text or "Sqrt" in text else value, np.float32)
    }
    x = np.array([[0, 1e-10, -0.0]], np.float32)
    model = model_of("g (float[1,3] x) => (float[1,3] y)", text, constants)
    BatchedTensors.describe(model).attach(model)
    (before,) = run(model, {"x": x})
    Pipeline((Simplify(),)).run(model)
    np.testing.assert_array_equal(run(model, {"x": x})[0], before)


@pytest.mark.parametrize(("operator", "value"), [("Mul", 1 + 4e-6), ("Div", 1 - 4e-6)])
def test_a_factor_near_one_is_no_one(operator: str, value: float) -> None:
    constants = {"c": np.array(value, np.float32)}
    model = model_of("g (float[1,3] x) => (float[1,3] y)", f"y = {operator} (x, c)", constants)
    BatchedTensors.describe(model).attach(model)
    x = f32(1, 3)
    (before,) = run(model, {"x": x})
    Pipeline((Simplify(),)).run(model)
    np.testing.assert_array_equal(run(model, {"x": x})[0], before)


def test_constants_of_one_name_both_stay() -> None:
    """A rule calls the shape of a Flatten by its input, which may be flattened twice."""
    model = model_of(
        "g (float[B,2,3,4] x) => (float[B,24] y, float z)",
        "y = Flatten (x)\n f = Flatten <axis: int = 2> (x)\n z = Exp (f)",
        {},
    )
    BatchedTensors.describe(model).attach(model)
    x = f32(5, 2, 3, 4)
    before = run(model, {"x": x})
    Pipeline((Simplify(),)).run(model)
    for found, wanted in zip(run(model, {"x": x}), before, strict=True):
        np.testing.assert_array_equal(found, wanted)
