"""Parts of a graph that masks are made by: what they read, and their results by running them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.spelled.region import (
    BATCH,
    MORE_STATES,
    ForeignError,
    NotRunError,
    Region,
    region_of,
)
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import f32

SIGNATURE = (
    "(int64[B,S] ids, int64[B,S] position_ids, float[B,S,8] h, float[B,2,E,4] states)"
    " => (float out)"
)
CONSTANTS = {
    "one": np.array([1]),
    "ten": np.float32(10),
    "minus": np.array([-1]),
    "three": np.array([3]),
}


def region(nodes: str, start: str = "") -> tuple[ir.Graph, Region]:
    """Of the value ``m``."""
    text = f"{nodes} r = Cast <to = 1> (m) out = Neg (r)"
    model = exported(SIGNATURE, text, {"w": f32(8, 8)}, CONSTANTS)
    values = {str(v.name): v for v in model.graph.inputs}
    values |= {str(v.name): v for node in model.graph for v in node.outputs}
    return model.graph, region_of(model.graph, values["m"], values.get(start))


def result(nodes: str, tokens: int) -> list[object]:
    graph, found = region(nodes)
    answer: list[object] = found.run(graph, tokens, {}).tolist()
    return answer


def test_what_a_part_consists_of() -> None:
    graph, found = region(
        "s = Shape (ids) a = Add (position_ids, one) b = Mul (a, three) m = Reshape (b, s)"
    )
    assert [node.op_type for node in found.nodes] == ["Add", "Mul", "Reshape"]
    assert [str(v.name) for v in found.shapes] == ["s"]
    assert {str(v.name) for v in found.constants} == {"one", "three"}
    assert {str(v.name) for v in found.inputs} == {"position_ids"}
    assert found.run(graph, 4, {}).tolist() == [[3, 6, 9, 12]] * BATCH


def test_it_begins_where_it_is_told_to() -> None:
    graph, found = region("a = Relu (h) b = MatMul (a, w) m = Mul (b, ten)", start="b")
    assert [node.op_type for node in found.nodes] == ["Mul"]
    start = found.nodes[0].inputs[0]
    assert start is not None
    assert found.run(graph, 3, {start: np.float32([[2]])}).tolist() == [[20]]


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        ("m = Shape (ids)", [BATCH, 5]),
        ("m = Shape (h)", [BATCH, 5, 8]),
        ("m = Shape <start = 1> (h)", [5, 8]),
        ("m = Shape <end = 2> (h)", [BATCH, 5]),
        ("m = Shape <start = -1> (h)", [8]),
        ("m = Shape <start = 1, end = -1> (h)", [5]),
        ("m = Shape (states)", [BATCH, 2, 5 + MORE_STATES, 4]),
    ],
)
def test_sizes_are_those_of_the_probe(nodes: str, sizes: list[int]) -> None:
    """Of which an encoder has more states than there are tokens."""
    assert result(f"{nodes.replace('m =', 's =')} m = Identity (s)", 5) == sizes


def test_ids_are_any_and_positions_are_places() -> None:
    ids = np.array(result("m = Identity (ids)", 6))
    assert ids.shape == (BATCH, 6)
    assert ids.min() >= 3
    assert len(np.unique(ids)) > 1
    assert result("m = Identity (position_ids)", 3) == [[0, 1, 2]] * BATCH


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("a = MatMul (h, w) m = Neg (a)", "MatMul .*gives a part of its mask"),
        ("a = MatMul (h, w) s = Shape (a) m = Identity (s)", ""),
        ("m = Neg (h)", "its mask is computed of the input h"),
        ("m = Reshape (position_ids, three)", "its mask cannot be computed"),
    ],
)
def test_what_is_no_mask_says_why(nodes: str, reason: str) -> None:
    if not reason:
        assert result(nodes, 5) == [BATCH, 5, 8], "only its shape is read"
        return
    with pytest.raises(ForeignError, match=reason) as caught:
        result(nodes, 5)
    assert isinstance(caught.value, NotRunError) == ("cannot" in reason)
