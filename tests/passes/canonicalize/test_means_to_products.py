"""`means-to-products` on text."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import fixed_metadata
from optc.passes.canonicalize.means_to_products import MeansToProducts
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

SIGNATURE = "(float[B,S,6] x) => (float[B,S,6] y)"
CONSTANTS = {"last": np.array([-1]), "tokens": np.array([1]), "zero": np.array([0])}


@pytest.mark.parametrize(
    ("operator", "column"), [("ReduceMean", "mean_column.6"), ("ReduceSum", "sum_column.6")]
)
def test_over_the_last_axis(operator: str, column: str) -> None:
    nodes = f"m = {operator} (x, last) y = Sub (x, m)"
    model = exported(SIGNATURE, nodes, {}, CONSTANTS)
    text, report = after(model, MeansToProducts())
    assert text == expected(f"""
        t0 = MatMul (x, {column})
        y = Sub (x, t0)
        """)
    assert report.count == 1
    assert model.graph.initializers[column].metadata_props == fixed_metadata()
    found = unchanged(
        exported(SIGNATURE, nodes, {}, CONSTANTS), {"x": f32(2, 3, 6)}, MeansToProducts()
    )
    assert found < 1e-6


@pytest.mark.parametrize(
    "back",
    [
        "y = Unsqueeze (m, last)",
        "b = Shape <start: int = 0, end: int = 1> (m) s = Shape <start: int = 1> (m) "
        "w = Concat <axis: int = 0> (b, s, tokens) r = Reshape (m, w) y = Expand (r, w)",
    ],
)
def test_an_axis_that_is_given_back(back: str) -> None:
    nodes = f"m = ReduceMean <keepdims: int = 0> (x, last) {back}"
    signature = "(float[B,S,6] x) => (float[B,S,1] y)"
    model = exported(signature, nodes, {}, CONSTANTS)
    for node in model.graph:
        if node.op_type == "Reshape":  # whose shape the exporter does not know
            node.outputs[0].shape = ir.Shape([None, None, None])
    text, _ = after(model, MeansToProducts())
    assert text == expected("y = MatMul (x, mean_column.6)")


@pytest.mark.parametrize(
    "nodes",
    [
        "m = ReduceMean (x, tokens) y = Sub (x, m)",
        "m = ReduceMean <keepdims: int = 0> (x, last) t = Tanh (m) "
        "u = Unsqueeze (t, last) y = Sub (x, u)",
        "m = ReduceMax (x, last) y = Sub (x, m)",
    ],
)
def test_others_stay(nodes: str) -> None:
    assert MeansToProducts().run(exported(SIGNATURE, nodes, {}, CONSTANTS)).count == 0
