"""The axis of as many tokens as all sequences have gets a name, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.encoders.token_axis import name_tokens
from tests.passes.canonicalize.texts import exported

CONSTANTS = {
    "heads": np.array([0, 5, 2, 4]),
    "folded": np.array([0, 5, 8]),
}


def shapes(signature: str, nodes: str) -> tuple[dict[str, list[object]], dict[str, list[int]]]:
    """Shapes of values, and targets of Reshape nodes, once five tokens are ``S``."""
    model = exported(signature, nodes, None, CONSTANTS)
    name_tokens(model.graph, "B", 5, "S")
    values = {str(v.name): list(dims(v)) for node in model.graph for v in node.outputs}
    targets = {}
    for node in model.graph:
        if node.op_type == "Reshape":
            target = node.inputs[1]
            assert target is not None
            assert target.const_value is not None
            targets[str(node.outputs[0].name)] = target.const_value.numpy().tolist()
    return values, targets


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ("B,5,8", ["B", "S", 8]),
        ("B,8,5", ["B", 8, "S"]),
        ("B,2,5,4", ["B", 2, "S", 4]),
        ("B,2,5,5", ["B", 2, "S", "S"]),
        ("B,5,5,2", ["B", "S", 5, 2]),
        ("B,5,2,5", ["B", "S", 2, 5]),
        ("B,5,5", ["B", "S", 5]),
        ("B,5", ["B", 5]),
        ("C,5,8", ["C", 5, 8]),
        ("B,6,8", ["B", 6, 8]),
        ("5,5,8", [5, 5, 8]),
    ],
)
def test_axes_by_their_shape(shape: str, named: list[object]) -> None:
    values, _ = shapes(f"(float[{shape}] x) => (float[{shape}] y)", "a = Neg (x) y = Neg (a)")
    assert values["a"] == named


def test_targets_of_reshapes_copy_axes_that_stay() -> None:
    values, targets = shapes(
        "(float[B,5,8] x) => (float[B,5,8] y)",
        "h = Neg (x) a = Reshape (h, heads) b = Neg (a) c = Reshape (b, folded) y = Neg (c)",
    )
    assert values["a"] == ["B", "S", 2, 4]
    assert values["c"] == ["B", "S", 8]
    assert targets == {"a": [0, 0, 2, 4], "c": [0, 0, 8]}
