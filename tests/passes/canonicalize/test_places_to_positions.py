"""`places-to-positions`, and factors by position or place that no probe of one token shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.places_to_positions import PlacesToPositions
from optc.passes.canonicalize.probe_heads import ProbeHeads
from optc.passes.canonicalize.remove_no_ops import RemoveNoOps
from tests.passes.canonicalize.test_probe_heads import ATTEND, CONSTANTS, SIGNATURE, STEPS, WEIGHTS
from tests.passes.canonicalize.texts import after, evaluate, exported
from tests.support.ir_text import f32

#: One and more, growing each time that so many places are behind.
GROWN = """
    moved = Add (counted, unit) parts = Div (moved, many) whole = Floor (parts)
    above = Add (whole, unit) log = Log (above) some = Mul (log, beta) factor = Add (some, unit)
    """
PLACES = f"""
    ids_shape = Shape <start: int = 1, end: int = 2> (position_ids)
    size = Squeeze (ids_shape)
    place = Range (zero, size, step)
    counted = Cast <to: int = 1> (place) {GROWN}
    column = Reshape (factor, as_column)
    lead = Shape <start: int = 0, end: int = 2> (position_ids)
    all = Concat <axis: int = 0> (lead, ones)
    spread = Expand (column, all)
    """
POSITIONS = f"""
    counted = Cast <to: int = 1> (position_ids) {GROWN}
    spread = Reshape (factor, last_ones)
    """
#: Heads split off, scaled, and then put before tokens.
SCALED = """
    qp = MatMul (x, wq) qs = Reshape (qp, heads) {}
    qf = Mul (qs, spread) qh = Transpose <perm: ints = [0, 2, 1, 3]> (qf)
    kp = MatMul (x, wk) ks = Reshape (kp, heads) kh = Transpose <perm: ints = [0, 2, 1, 3]> (ks)
    vp = MatMul (x, wv) vs = Reshape (vp, heads) vh = Transpose <perm: ints = [0, 2, 1, 3]> (vs)
    """ + ATTEND.format(q="qh", k="kh", v="vh")
MORE: dict[str, Any] = {
    "zero": np.array(0),
    "step": np.array(1),
    "many": np.float32(3),
    "as_column": np.array([1, -1, 1, 1]),
    "ones": np.array([1, 1]),
    "last_ones": np.array([0, 0, 1, 1]),
    "seven": np.array(7),
}


def model(nodes: str) -> ir.Model:
    named = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {k: v for k, v in {**CONSTANTS, **MORE}.items() if k in named}
    one = exported(SIGNATURE, nodes, WEIGHTS, constants)
    for node in one.graph:
        for value in node.outputs:
            if value.name in {
                "place",
                "counted",
                "moved",
                "parts",
                "whole",
                "above",
                "log",
                "some",
                "factor",
            }:
                value.shape = ir.Shape(["S"] if "place" in nodes else ["B", "S"])
            if value.name in ("column", "spread"):
                lead = "B" if value.name == "spread" else 1
                value.shape = ir.Shape([lead, "S", 1, 1])
    return one


def fed() -> dict[str, np.ndarray]:
    """Positions are places, as of an exported graph, beyond where factors begin to grow."""
    return {"x": f32(2, 12, 6), "position_ids": np.tile(np.arange(12), (2, 1))}


def test_a_factor_by_place_becomes_one_by_position() -> None:
    one = model(SCALED.format(PLACES))
    before = evaluate(one, fed())
    text, report = after(one, PlacesToPositions(), RemoveNoOps())
    assert report.details == {"expand": 1}
    assert "Range" not in text
    assert "Cast <to = 1> (position_ids)" in text.replace(": int", "")
    np.testing.assert_array_equal(evaluate(one, fed()), before)
    shifted = fed()
    shifted["position_ids"] = shifted["position_ids"] + 40
    assert np.abs(evaluate(one, shifted) - before).max() > 1e-3, "positions are read"


@pytest.mark.parametrize("factor", [PLACES, POSITIONS])
def test_a_factor_behind_the_swap_of_heads_is_folded(factor: str) -> None:
    one = model(SCALED.format(factor))
    before = evaluate(one, fed())
    text, _ = after(one, PlacesToPositions(), RemoveNoOps(), *STEPS)
    assert text.count("Reshape") == text.count("Transpose") == 0
    assert "Floor" in text
    np.testing.assert_allclose(evaluate(one, fed()), before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        ("Range (zero, size, step)", "Range (step, size_1, step)"),
        ("Range (zero, size, step)", "Range (zero, size, seven)"),
    ],
)
def test_other_ranges_are_left(change: tuple[str, str]) -> None:
    nodes = PLACES.replace("place =", "size_1 = Add (size, step) place =")
    one = model(SCALED.format(nodes.replace(*change)))
    assert PlacesToPositions().run(one).count == 0


#: The factor is inside of a turn, where it is not taken off.
INSIDE = SCALED.replace("qh = Trans", "qn = Neg (qf) qh = Trans").replace("(qf)\n", "(qn)\n")


@pytest.mark.parametrize("factor", [PLACES, POSITIONS])
@pytest.mark.parametrize("many", [3, 8192])
def test_what_one_token_does_not_show_is_refused(factor: str, many: int) -> None:
    """The first 8,191 places have the factor one: no probe shows another."""
    nodes = INSIDE.format(factor).replace("Transpose <perm: ints = [0, 2, 1, 3]> (qf)", SWAP)
    one = model(nodes)
    next(v for v in one.graph.initializers.values() if v.name == "many").const_value = ir.tensor(
        np.float32(many)
    )
    report = ProbeHeads().run(one)
    assert report.count == 0
    assert report.skipped
    assert any(node.op_type == "Floor" for node in one.graph)


SWAP = "Transpose <perm: ints = [0, 2, 1, 3]> (qn)"
