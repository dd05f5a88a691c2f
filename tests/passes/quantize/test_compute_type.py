"""`compute-type`: one type for all but what is computed from positions alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError, UnsupportedError
from optc.passes.quantize.compute_type import ComputeType
from tests.passes.checked import checked_run
from tests.support.families import FUSED, model_after
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense
from tests.support.ragged import run

SIGNATURE = "g (float[T,8] x, int64[T] positions) => (float[T,6] logits)"
NODES = """
    p = Cast <to: int = 1> (positions)
    u = Unsqueeze (p, last)
    a = Mul (u, inv)
    c = Cos (a)
    n = Mul (x, c)
    m = MatMul (n, w)
    h = Greater (m, half)
    f = Cast <to: int = 1> (h)
    logits = Mul (m, f)"""
WEIGHTS = {
    "last": np.array([-1]),
    "inv": f32(8),
    "w": f32(8, 6),
    "half": np.array([0.5], np.float32),
}


def model() -> ir.Model:
    made = model_of(SIGNATURE, NODES, WEIGHTS)
    for value in (v for node in made.graph for v in node.outputs):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    return made


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_text(dtype: str) -> None:
    made = model()
    checked_run(ComputeType(dtype), made)
    code = 10 if dtype == "float16" else 16
    assert nodes_text(made) == expected(
        f"""
        p = Cast <to = 1> (positions)
        u = Unsqueeze (p, last)
        a = Mul (u, inv)
        c = Cos (a)
        c.{dtype} = Cast <to = {code}> (c)
        n = Mul (x, c.{dtype})
        m = MatMul (n, w.{dtype})
        h = Greater (m, half.{dtype})
        f = Cast <to = {code}> (h)
        logits.{dtype} = Mul (m, f)
        logits = Cast <to = 1> (logits.{dtype})"""
    )
    kinds = {value.name: value.dtype for node in made.graph for value in node.outputs}
    assert kinds["h"] is ir.DataType.BOOL
    assert kinds["c"] is kinds["logits"] is ir.DataType.FLOAT
    assert kinds["m"] is made.graph.inputs[0].dtype is ir.DataType[dtype.upper()]


def test_float16_computes_the_same_as_rounded_operands() -> None:
    made, x, positions = model(), f32(5, 8), np.arange(5)
    checked_run(ComputeType(), made)
    (found,) = run(made, {"x": x.astype(np.float16), "positions": positions})
    assert found.dtype == np.float32
    angles = positions[:, None].astype(np.float32) * WEIGHTS["inv"]
    n = x.astype(np.float16) * np.cos(angles).astype(np.float16)
    m = n.astype(np.float64) @ WEIGHTS["w"].astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(found, m * (m > 0.5), rtol=5e-3, atol=5e-3)


def test_weights_are_rounded_when_they_are_read() -> None:
    made = model()
    checked_run(ComputeType("bfloat16"), made)
    weight = made.graph.initializers["w.bfloat16"].const_value
    assert weight is not None
    np.testing.assert_array_equal(weight.numpy(), WEIGHTS["w"].astype(ml_dtypes.bfloat16))


def test_a_weight_that_float16_does_not_hold_is_named_when_it_is_read() -> None:
    large = WEIGHTS | {"w": np.where(np.eye(8, 6) > 0, np.float32(-7e4), np.float32(1))}
    signature = model_of(SIGNATURE, NODES, large)
    for value in (v for node in signature.graph for v in node.outputs):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    ComputeType().run(signature)
    weight = signature.graph.initializers["w.float16"].const_value
    assert weight is not None
    with pytest.raises(UnsupportedError, match=r"weight w: holds 7e.04, and float16 at most 65504"):
        weight.numpy()


def test_constants_beyond_float16_are_infinite_as_masks_want_them() -> None:
    made = model_of(SIGNATURE, NODES, WEIGHTS | {"half": np.array([-3e38], np.float32)})
    with np.errstate(over="ignore"):
        ComputeType().run(made)
    constant = made.graph.initializers["half.float16"].const_value
    assert constant is not None
    assert constant.numpy()[0] == -np.inf


def test_a_whole_step_keeps_float32_logits() -> None:
    made = model_after(FUSED, Dense())
    report = checked_run(ComputeType(), made)
    assert report.count > 10
    assert made.graph.outputs[0].dtype is ir.DataType.FLOAT


def test_what_is_no_step_and_other_types_are_refused() -> None:
    other = model_of("g (float[T,8] x) => (float[T,8] y)", "y = Tanh (x)")
    with pytest.raises(InputError, match="the model is no step"):
        ComputeType().requires(other)
    with pytest.raises(InputError, match="dtype=int8 is not possible"):
        ComputeType("int8")
