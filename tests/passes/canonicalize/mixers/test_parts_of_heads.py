"""`parts-of-heads` on text: a part of every head of a projection becomes a projection."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.passes.canonicalize.fold_heads import FoldHeads
from optc.passes.canonicalize.fold_weights import FoldWeights
from optc.passes.canonicalize.mixers.parts_of_heads import PartsOfHeads
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

SIGNATURE = "(float[2,S,8] x) => (float[2,S,6] y)"
CONSTANTS = {
    "heads": np.array([2, -1, 3, 4]),
    "whole": np.array([2, -1, 6]),
    "one": np.array([1]),
    "three": np.array([3]),
    "last": np.array([3]),
}
STEPS = (FoldWeights(), PartsOfHeads(), FoldHeads())


def model(nodes: str) -> ir.Model:
    used = {k: v for k, v in CONSTANTS.items() if k in nodes}
    found = exported(SIGNATURE, nodes, {"w": f32(8, 12)}, used)
    for node in found.graph:  # the exporter names the sizes that shape inference leaves open
        for value in node.outputs:
            if value.shape is not None and len(value.shape) > 2:
                value.shape = ir.Shape([2, "S", *list(value.shape)[2:]])
    return found


def test_a_gate_beside_the_queries_of_each_head() -> None:
    nodes = """
        p = MatMul (x, w) s = Reshape (p, heads)
        a, b = Split <axis: int = 3, num_outputs: int = 2> (s)
        g = Sigmoid (b) q = Mul (a, g) y = Reshape (q, whole)"""
    text, _ = after(model(nodes), *STEPS)
    assert text == expected("""
        t0 = MatMul (x, w.part0)
        t1 = MatMul (x, w.part1)
        t2 = Sigmoid (t1)
        y = Mul (t0, t2)
        """)
    assert unchanged(model(nodes), {"x": f32(2, 5, 8)}, *STEPS) < 1e-6


def test_a_slice_of_each_head() -> None:
    nodes = """
        p = MatMul (x, w) s = Reshape (p, heads)
        a = Slice (s, one, three, last) y = Reshape (a, whole)"""
    text, _ = after(model(nodes), *STEPS)
    assert text == "y = MatMul (x, w.part0)"
    assert unchanged(model(nodes), {"x": f32(2, 5, 8)}, *STEPS) < 1e-6


def test_parts_of_what_no_projection_gives_stay() -> None:
    nodes = """
        p = MatMul (x, w) t = Tanh (p) s = Reshape (t, heads)
        a = Slice (s, one, three, last) y = Reshape (a, whole)"""
    before, _ = after(model(nodes), FoldWeights())
    text, report = after(model(nodes), FoldWeights(), PartsOfHeads())
    assert text == before
    assert any("a part of every head" in reason for reason in report.skipped)
