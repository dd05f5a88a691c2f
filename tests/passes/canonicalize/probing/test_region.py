"""How far back a value is made of moves, rotations and factors alone."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.probing.region import Region, dependence, region_of
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import f32

SIGNATURE = "(int64[B,S] ids, int64[B,S] position_ids, float[B,S,8] x) => (float out)"
CONSTANTS = {
    "one": np.float32(2),
    "many": f32(8),
    "heads": np.array([0, 0, 2, 4]),
    "folded": np.array([0, 0, 8]),
    "n0": np.array([0]),
    "n4": np.array([4]),
    "n3": np.array([3]),
    "minus": np.array([-1]),
}
PROJECTED = "p = MatMul (x, w) q = MatMul (x, v)"
WEIGHTS = {"w": f32(8, 8, seed=1), "v": f32(8, 8, seed=2)}
ANGLES = (
    "real = Cast <to: int = 1> (position_ids) column = Unsqueeze (real, minus) c = Cos (column)"
)


def region(nodes: str) -> tuple[Region, dict[str, ir.Value]]:
    """Of the value ``y`` behind two projections."""
    model = exported(
        SIGNATURE, f"{PROJECTED} {ANGLES} {nodes} out = Identity (y)", WEIGHTS, CONSTANTS
    )
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    return region_of(values["y"], dependence(model.graph)), values


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Identity (p)",
        "y = Neg (p)",
        "y = Mul (p, one)",
        "y = Mul (one, p)",
        "y = Div (p, one)",
        "y = Mul (p, c)",
        "a = Neg (p) y = Add (a, p)",
        "a = Mul (p, c) y = Sub (p, a)",
        "a = Slice (p, n0, n4, minus) b = Slice (p, n4, n0, minus) y = Concat <axis = -1> (b, a)",
        "a = Reshape (p, heads) y = Transpose <perm = [0, 2, 1, 3]> (a)",
        "s = Shape (x) y = Expand (p, s)",
    ],
)
def test_moves_rotations_and_factors_lead_to_the_projection(nodes: str) -> None:
    found, values = region(nodes)
    assert found.reason == ""
    assert found.sources == [values["p"]]
    assert (found.of_positions == [values["c"]]) == ("c)" in nodes)
    assert values["y"] in found.moving
    assert values["p"].producer() not in found.nodes


@pytest.mark.parametrize("nodes", ["y = Add (p, q)", "y = Concat <axis = -1> (p, q)"])
def test_paths_may_come_from_two_projections(nodes: str) -> None:
    found, values = region(nodes)
    assert found.reason == ""
    assert {str(source.name) for source in found.sources} == {"p", "q"}
    assert not found.is_plain
    assert values["y"] in found.moving


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("r = Relu (p) a = Add (p, q) y = Add (a, r)", "it comes from several projections"),
        ("a = Reshape (p, heads) y = Relu (a)", "it comes from a value of shape ['B', 'S', 2, 4]"),
        ("y = Identity (c)", "it comes from no projection"),
        ("y = Identity (one)", "it comes from no projection"),
    ],
)
def test_what_is_no_such_part_says_why(nodes: str, reason: str) -> None:
    assert region(nodes)[0].reason == reason


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Relu (p)",
        "y = Add (p, one)",
        "y = Mul (p, many)",
        "y = Mul (p, p)",
        "y = Mul (p, q)",
        "y = Div (one, p)",
        "y = Add (p, c)",
    ],
)
def test_other_operators_bound_it(nodes: str) -> None:
    """They are what is read themselves: nothing lies in between."""
    found, values = region(nodes)
    assert found.sources == [values["y"]]
    assert found.nodes == set()


@pytest.mark.parametrize(
    ("nodes", "plain"),
    [
        ("a = Reshape (p, heads) y = Transpose <perm = [0, 2, 1, 3]> (a)", True),
        ("s = Slice (p, n0, n4, minus) y = Identity (s)", False),
        ("y = Slice (p, n0, n4, minus)", True),
        ("y = Mul (p, c)", False),
        ("a = Reshape (p, heads) y = Transpose <perm = [0, 2, 3, 1]> (a)", False),
        ("a = Reshape (p, heads) y = Slice (a, n0, n4, minus)", False),
        ("a = Reshape (p, heads) y = Reshape (a, folded)", True),
    ],
)
def test_heads_that_are_only_split_off_are_plain(nodes: str, plain: bool) -> None:
    assert region(nodes)[0].is_plain is plain


def test_what_depends_on_tokens_and_on_positions() -> None:
    model = exported(
        SIGNATURE,
        f"{PROJECTED} {ANGLES} s = Shape (p) t = Identity (s) m = Mul (p, c) out = Neg (m)",
        WEIGHTS,
        CONSTANTS,
    )
    found = dependence(model.graph)
    assert found.positions is model.graph.inputs[1]
    assert {v.name for v in found.of_positions} == {"position_ids", "real", "column", "c"}
    assert {v.name for v in found.of_tokens} == {"ids", "x", "p", "q", "m", "out"}
