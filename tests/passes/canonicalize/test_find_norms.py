"""`find-norms` on text: spelled-out norms in, one operator out, the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.find_norms import FindNorms
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS = {"two": np.float32(2), "eps": np.float32(1e-5), "last": np.array([-1])}
CONSTANTS["minus_half"] = np.float32(-0.5)
SQUARE = {
    "pow": "square = Pow (x, two)",
    "mul": "square = Mul (x, x)",
}
ROOT = {
    "reciprocal": "factor = Reciprocal (root) normed = Mul (x, factor)",
    "power": "factor = Pow (shifted, minus_half) normed = Mul (x, factor)",
    "div": "normed = Div (x, root)",
}
MEAN = (
    "mean = ReduceMean <keepdims: int = 1> (square, last) shifted = Add (mean, eps)"
    " root = Sqrt (shifted)"
)


def norm(square: str = "pow", root: str = "reciprocal", scale: str = "y = Mul (w, normed)") -> str:
    return f"{SQUARE[square]} {MEAN} {ROOT[root]} {scale}"


def model(nodes: str, shape: str = "B,S,8", size: int = 8) -> ir.Model:
    signature = f"(float[{shape}] x) => (float[{shape}] y)"
    return exported(signature, nodes, {"w": f32(size)}, CONSTANTS)


@pytest.mark.parametrize("square", SQUARE)
@pytest.mark.parametrize("root", ROOT)
def test_rms_norm(square: str, root: str) -> None:
    text, report = after(model(norm(square, root)), FindNorms())
    assert text == "y = RMSNormalization <axis = -1, epsilon = 1e-05> (x, w)"
    assert report.details == {"rms": 1}
    assert unchanged(model(norm(square, root)), {"x": f32(2, 3, 8)}, FindNorms()) < 1e-5


def test_a_norm_without_scale_gets_ones() -> None:
    nodes = norm(scale="y = Identity (normed)")
    found = model(nodes)
    FindNorms().run(found)
    scale = next(n for n in found.graph if n.op_type == "RMSNormalization").inputs[1]
    assert scale is not None
    assert scale.const_value is not None
    np.testing.assert_array_equal(scale.const_value.numpy(), np.ones(8, np.float32))
    assert unchanged(model(nodes), {"x": f32(2, 3, 8)}, FindNorms()) < 1e-5


def test_layer_norm_is_a_centred_rms_norm() -> None:
    nodes = "middle = ReduceMean <keepdims: int = 1> (input, last) x = Sub (input, middle) "
    signature = "(float[B,S,8] input) => (float[B,S,8] y)"
    found = exported(signature, nodes + norm(), {"w": f32(8)}, CONSTANTS)
    text, report = after(found, FindNorms())
    assert text == "y = LayerNormalization <axis = -1, epsilon = 1e-05> (input, w)"
    assert report.details == {"rms": 1, "layer norm": 1}
    again = exported(signature, nodes + norm(), {"w": f32(8)}, CONSTANTS)
    assert unchanged(again, {"input": f32(2, 3, 8)}, FindNorms()) < 1e-5


@pytest.mark.parametrize("shape", ["B,S,4,8", "B,4,S,8"])
def test_head_norm(shape: str) -> None:
    swapped = shape == "B,4,S,8"
    text, report = after(model(norm(), shape), FindNorms())
    inner = """
        t1 = Reshape (t0, to_0_0_rest)
        t2 = optc.HeadRMSNorm <num_heads = 4, epsilon = 1e-05> (t1, w)
        t3 = Reshape (t2, to_0_0_4_8)
        """
    lines = expected(inner)
    if swapped:
        swap = "Transpose <perm: ints = [0, 2, 1, 3]>"
        lines = f"t0 = {swap} (x)\n{lines}\ny = {swap} (t3)"
    else:
        for old, new in (("t0", "x"), ("t1", "t0"), ("t2", "t1"), ("t3", "y")):
            lines = lines.replace(old, new)
    assert text == lines
    assert report.details == {"rms": 1, "head norm": 1}
    x = f32(2, 4, 5, 8) if swapped else f32(2, 5, 4, 8)
    assert unchanged(model(norm(), shape), {"x": x}, FindNorms()) < 1e-5


def test_the_mean_of_something_else_is_a_miss() -> None:
    nodes = norm().replace("Pow (x, two)", "Pow (w, two)")
    found = model(nodes)
    report = FindNorms().run(found)
    assert report.count == 0
    assert report.skipped[0].endswith("the root is not of mean(x * x) + epsilon")


def test_another_power_is_left_alone() -> None:
    found = model(norm().replace("Pow (x, two)", "Pow (x, eps)"))
    assert FindNorms().run(found).count == 0


def test_a_norm_of_unknown_heads_is_a_miss() -> None:
    found = model("y = RMSNormalization <axis: int = -1, epsilon: float = 1e-5> (x, w)", "B,S,H,8")
    report = FindNorms().run(found)
    assert (
        "not a norm of heads I know: its operand has shape ['B', 'S', 'H', 8]"
        in (report.skipped[0])
    )
