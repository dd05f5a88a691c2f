"""Factors of queries join the scale of their attention, where nothing else lies between."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.encoders.factors import take_factor
from tests.passes.canonicalize.texts import exported

SIGNATURE = "(float[B,2,S,4] q, float[B,2,S,4] k, float[B,S,8] f) => (float[B,2,S,4] y)"
CONSTANTS = {
    "two": np.float32(2),
    "negative": np.float32(-2),
    "many": np.ones(4, np.float32),
    "heads": np.array([0, 0, 2, 4]),
}


def scale_behind(nodes: str, attributes: str = "") -> tuple[float | None, int, int]:
    """The scale that is stated, how many factors were told of, and how many products are left."""
    model = exported(SIGNATURE, f"{nodes} y = Attention {attributes} (x, k, k)", None, CONSTANTS)
    attention = next(node for node in model.graph if node.op_type == "Attention")
    report = PassReport()
    take_factor(attention, report)
    found = attention.attributes.get("scale")
    used = {value for node in model.graph for value in node.inputs}
    left = [n for n in model.graph if n.op_type == "Mul" and n.outputs[0] in used]
    return None if found is None else found.as_float(), report.count, len(left)


@pytest.mark.parametrize(
    ("nodes", "attributes", "scale"),
    [
        ("x = Mul (q, two)", "", 1.0),
        ("x = Mul (two, q)", "", 1.0),
        ("x = Mul (q, two)", "<scale: float = 0.25>", 0.5),
        (
            "a = Mul (f, two) b = Reshape (a, heads) x = Transpose <perm = [0, 2, 1, 3]> (b)",
            "",
            1.0,
        ),
    ],
)
def test_a_factor_joins_the_scale(nodes: str, attributes: str, scale: float) -> None:
    """Which is one over the root of the 4 channels where none is stated."""
    assert scale_behind(nodes, attributes) == (pytest.approx(scale), 1, 0)


@pytest.mark.parametrize(
    "nodes",
    [
        "x = Mul (q, negative)",
        "x = Mul (q, many)",
        "x = Mul (q, k)",
        "a = Mul (q, two) x = Relu (a)",
        "x = Identity (q)",
    ],
)
def test_others_stay(nodes: str) -> None:
    products = nodes.count("Mul")
    assert scale_behind(nodes) == (None, 0, products)


def test_a_factor_that_others_read_stays() -> None:
    model = exported(
        SIGNATURE.replace("y)", "y, float[B,2,S,4] z)"),
        "x = Mul (q, two) y = Attention (x, k, k) z = Neg (x)",
        None,
        CONSTANTS,
    )
    attention = next(node for node in model.graph if node.op_type == "Attention")
    take_factor(attention, PassReport())
    assert "scale" not in attention.attributes
