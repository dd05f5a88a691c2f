"""`fold-heads` on text: what splits heads off and folds them again is cancelled."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.fold_heads import FoldHeads
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS = {"split": np.array([0, 0, 4, 8]), "folded": np.array([0, 0, -1])}
CONSTANTS |= {"factor": np.float32(0.5)}
SWAP = "Transpose <perm: ints = [0, 2, 1, 3]>"
APART = f"a = Reshape (x, split) b = {SWAP} (a)"
TOGETHER = f"d = {SWAP} (c) y = Reshape (d, folded)"


def model(nodes: str, result: str = "B,S,32") -> ir.Model:
    return exported(
        f"(float[B,S,32] x) => (float[{result}] y)", nodes, {}, {**CONSTANTS, "wide": f32(4, 1, 1)}
    )


def test_a_round_trip_is_nothing() -> None:
    nodes = f"{APART} d = {SWAP} (b) z = Reshape (d, folded) y = Neg (z)"
    text, report = after(model(nodes), FoldHeads())
    assert text == "y = Neg (x)"
    assert report.details == {"transpose": 1, "reshape": 1}


def test_element_wise_operators_move_before_the_split() -> None:
    nodes = f"{APART} b2 = Mul (factor, b) c = Tanh (b2) {TOGETHER}"
    text, report = after(model(nodes), FoldHeads())
    assert text == expected("""
        t0 = Mul (factor, x)
        y = Tanh (t0)
        """)
    assert report.details == {"element-wise": 2, "transpose": 1, "reshape": 1}
    assert unchanged(model(nodes), {"x": f32(2, 3, 32)}, FoldHeads()) == 0.0


#: A gate of each head, from a projection of its own.
GATED = """
    w = Slice (x, first, four, last) g = Sigmoid (w) c = Unsqueeze (g, last)
    a = Reshape (x, split) m = {} y = Reshape (m, folded)"""
BOUNDS = {"first": np.array([0]), "four": np.array([4]), "last": np.array([-1])}
BOUNDS |= {"column": np.array([0, 0, 4, 1])}


@pytest.mark.parametrize("product", ["Mul (a, c)", "Mul (c, a)", "Div (a, c)"])
@pytest.mark.parametrize("column", ["Unsqueeze (g, last)", "Reshape (g, column)"])
def test_factors_of_heads_are_spread_over_their_columns(product: str, column: str) -> None:
    nodes = GATED.format(product).replace("Unsqueeze (g, last)", column)

    def gated() -> ir.Model:
        return exported(
            "(float[B,S,32] x) => (float[B,S,32] y)", nodes, {}, {**CONSTANTS, **BOUNDS}
        )

    text, report = after(gated(), FoldHeads())
    assert text == expected(f"""
        t0 = Slice (x, first, four, last)
        t1 = Sigmoid (t0)
        t2 = MatMul (t1, spread_heads.4x8)
        y = {product[:3]} (x, t2)
        """)
    assert report.details == {"factor of each head": 1, "reshape": 1}
    assert unchanged(gated(), {"x": f32(2, 3, 32)}, FoldHeads()) < 1e-6


def test_heads_divided_into_their_factors_stay() -> None:
    one = exported(
        "(float[B,S,32] x) => (float[B,S,32] y)",
        GATED.format("Div (c, a)"),
        {},
        {**CONSTANTS, **BOUNDS},
    )
    assert FoldHeads().run(one).count == 0


def test_operators_that_tell_heads_apart_stay() -> None:
    text, report = after(model(f"{APART} c = Mul (b, wide) {TOGETHER}"), FoldHeads())
    assert report.count == 0
    assert text.count("Transpose") == 2


def test_other_permutations_and_shapes_stay() -> None:
    nodes = f"{APART} d = Transpose <perm: ints = [0, 1, 3, 2]> (b) y = Reshape (d, folded)"
    _, report = after(model(nodes, "B,4,R"), FoldHeads())
    assert report.count == 0
