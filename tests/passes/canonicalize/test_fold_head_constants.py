"""`fold-head-constants` on text: constants of heads become vectors of folded heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.fold_head_constants import FoldHeadConstants
from optc.passes.canonicalize.fold_heads import FoldHeads
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS: dict[str, Any] = {
    "split": np.array([0, 0, 4, 8]),
    "folded": np.array([0, 0, -1]),
    "c": 2 + f32(4, 8),
    "last": np.array([-1]),
}


def model(nodes: str, **more: Any) -> ir.Model:
    constants = {**CONSTANTS, **more}
    named = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    return exported(
        "(float[B,S,32] x) => (float[B,S,32] y)",
        nodes,
        {},
        {k: v for k, v in constants.items() if k in named},
    )


NODES = "a = Reshape (x, split) b = {} y = Reshape (b, folded)"


@pytest.mark.parametrize("operator", ["Mul (a, c)", "Mul (c, a)", "Add (a, c)", "Sub (c, a)"])
@pytest.mark.parametrize("shape", [(4, 8), (4, 1), (1, 1, 4, 8), (1, 4, 1)])
def test_constants_of_heads_become_vectors(operator: str, shape: tuple[int, ...]) -> None:
    values = (2 + f32(4, 8))[:, : shape[-1]].reshape(shape)
    nodes = NODES.format(operator)
    one = model(nodes, c=values)
    text, report = after(one, FoldHeadConstants(), FoldHeads())
    assert text == expected("y = " + operator.replace("a", "x").replace("c", "c.heads"))
    assert report.details == {"reshape": 1}
    assert unchanged(model(nodes, c=values), {"x": f32(2, 3, 32)}, FoldHeadConstants()) == 0.0


def test_a_vector_with_axes_added_is_one() -> None:
    nodes = NODES.format("Div (a, d)").replace("b =", "d = Unsqueeze (c, last) b =")
    one = model(nodes, c=np.float32([1, 2, 3, 4]))
    text, _ = after(one, FoldHeadConstants(), FoldHeads())
    assert text == expected("y = Div (x, c.heads)")
    array = one.graph.initializers["c.heads"].const_value
    assert array is not None
    np.testing.assert_array_equal(array.numpy(), np.repeat([1, 2, 3, 4], 8).astype(np.float32))


@pytest.mark.parametrize("shape", [(8,), (1, 8), (3, 1, 4, 8)])
def test_what_is_no_constant_of_heads_stays(shape: tuple[int, ...]) -> None:
    one = model(NODES.format("Mul (a, c)"), c=np.ones(shape, np.float32))
    assert FoldHeadConstants().run(one).count == 0


def test_computed_factors_stay() -> None:
    nodes = NODES.format("Mul (a, d)").replace("b =", "d = Neg (a) b =")
    assert FoldHeadConstants().run(model(nodes)).count == 0
