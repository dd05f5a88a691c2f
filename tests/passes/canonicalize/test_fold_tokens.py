"""`fold-tokens` on text: [B*S, D] between two reshapes becomes [B, S, D], the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.fold_tokens import FoldTokens
from optc.passes.canonicalize.fold_weights import FoldWeights
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS = {
    "flat": np.array([-1, 8]),
    "heads": np.array([2, -1, 2, 3]),
    "back": np.array([2, -1, 6]),
    "sizes": np.array([2, 4]),
    "bias": f32(6),
    "one": np.array([1]),
    "two": np.array([2]),
}
WEIGHTS = {"w": f32(8, 6), "other": f32(6, 6)}
SIGNATURE = "(float[2,S,8] x) => (float[2,S,6] y)"
FLATTEN = "f = Reshape (x, flat)"


def model(nodes: str, signature: str = SIGNATURE) -> ir.Model:
    used = {k: v for k, v in CONSTANTS.items() if k in nodes}
    weights = {k: v for k, v in WEIGHTS.items() if f", {k})" in nodes or f", {k}," in nodes}
    return exported(signature, f"{FLATTEN} {nodes}", weights, used | {"flat": CONSTANTS["flat"]})


def test_a_linear_layer_of_flat_tokens() -> None:
    nodes = "g = Gemm (f, w, bias) y = Reshape (g, back)"
    text, report = after(model(nodes), FoldWeights(), FoldTokens())
    assert text == expected("""
        t0 = MatMul (x, w)
        y = Add (t0, bias)
        """)
    assert report.details == {"reshape": 1}
    assert unchanged(model(nodes), {"x": f32(2, 3, 8)}, FoldWeights(), FoldTokens()) < 1e-6


@pytest.mark.parametrize("how", ["Reshape (x, head)", "Unsqueeze (x, one)"])
def test_tokens_of_one_head(how: str) -> None:
    """Latents of keys and values are one head of a cache before the layer that expands them."""
    constants = {
        "head": np.array([2, 1, -1, 8]),
        "one": np.array([1]),
        "back": np.array([2, -1, 6]),
    }
    nodes = f"o = {how} m = MatMul (o, w) t = Tanh (m) y = Reshape (t, back)"
    used = {name: value for name, value in constants.items() if f"{name})" in nodes}

    def model() -> ir.Model:
        found = exported("(float[2,S,8] x) => (float[2,S,6] y)", nodes, {"w": WEIGHTS["w"]}, used)
        for node, width in zip(found.graph, (8, 6, 6), strict=False):
            node.outputs[0].shape = ir.Shape([2, 1, "S", width])
        return found

    text, report = after(model(), FoldTokens())
    assert text == expected("""
        t0 = MatMul (x, w)
        y = Tanh (t0)
        """)
    assert report.details == {"reshape": 1}
    assert unchanged(model(), {"x": f32(2, 3, 8)}, FoldTokens()) < 1e-6


AXES = {
    "softmax": "m = MatMul (f, w) s = Softmax <axis: int = 1> (m) y = Reshape (s, back)",
    "norm": "m = MatMul (f, w) s = LayerNormalization <axis: int = 1> (m, bias) "
    "y = Reshape (s, back)",
    "parts": "m = MatMul (f, w) a, b = Split <axis: int = 1> (m, sizes) "
    "t = Tanh (a) s = Concat <axis: int = 1> (t, b) y = Reshape (s, back)",
    "sum": "m = MatMul (f, w) t = ReduceSum (m, one) q = Div (m, t) y = Reshape (q, back)",
    "best": "m = MatMul (f, w) v, i = TopK <axis: int = 1> (m, two) "
    "t = ReduceSum (v, one) q = Mul (m, t) y = Reshape (q, back)",
    "gate": "m = MatMul (f, w) n = MatMul (m, other) s = Sigmoid (n) q = Mul (m, s) "
    "y = Reshape (q, back)",
}


@pytest.mark.parametrize("name", AXES)
def test_operators_of_the_last_axis(name: str) -> None:
    found = model(AXES[name])
    text, report = after(found, FoldTokens())
    assert "Reshape" not in text
    assert "axis = 1" not in text
    assert report.details == {"reshape": 1}
    assert unchanged(model(AXES[name]), {"x": f32(2, 3, 8)}, FoldTokens()) < 1e-6


def test_heads_are_split_off_three_axes() -> None:
    nodes = "m = MatMul (f, w) y = Reshape (m, heads)"
    signature = "(float[2,S,8] x) => (float[2,S,2,3] y)"
    found = exported(signature, f"{FLATTEN} {nodes}", {"w": WEIGHTS["w"]}, CONSTANTS)
    found.graph.outputs[0].shape = ir.Shape(["B", "S", 2, 3])
    found.graph.inputs[0].shape = ir.Shape(["B", "S", 8])
    text, _ = after(found, FoldTokens())
    assert text == expected("""
        t0 = MatMul (x, w)
        y = Reshape (t0, heads)
        """)


def test_a_sum_over_tokens_keeps_them_in_one_axis() -> None:
    nodes = "m = MatMul (f, w) z = CumSum (m, zero) y = Reshape (z, back)"
    constants = {**CONSTANTS, "zero": np.array(0)}
    found = exported(SIGNATURE, f"{FLATTEN} {nodes}", {"w": WEIGHTS["w"]}, constants)
    report = FoldTokens().run(found)
    assert report.count == 0
    assert report.skipped[0].endswith("CumSum of all tokens in one axis is not of the last axis")
    assert unchanged(found, {"x": f32(2, 3, 8)}, FoldTokens()) == 0


LOOKUP = """
    ids = Reshape (i, all) again = Reshape (ids, all)
    rows = Gather (table, again) y = Reshape (rows, back)
    """


def lookup(index: str = "int64[B,S] i") -> ir.Model:
    constants = {"all": np.array([-1]), "back": np.array([2, -1, 6])}
    signature = f"({index}) => (float[B,S,6] y)"
    return exported(signature, LOOKUP, {}, {**constants, "table": f32(9, 6)})


def test_rows_of_a_table_by_flat_indices() -> None:
    text, report = after(lookup(), FoldTokens())
    assert text == "y = Gather <axis = 0> (table, i)"
    assert report.details == {"reshape": 1}
    assert unchanged(lookup(), {"i": np.array([[1, 2, 8], [0, 3, 4]])}, FoldTokens()) == 0


def test_rows_by_one_sequence_of_indices_stay() -> None:
    assert FoldTokens().run(lookup("int64[N] i")).count == 0
