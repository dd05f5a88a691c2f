"""Places of tokens, however they are counted: they become an input, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.encoders.positions import number_positions
from optc.passes.canonicalize.encoders.source import Source
from tests.passes.canonicalize.texts import exported, wrong_shapes
from tests.support.ir_text import Array, f32
from tests.support.ragged import run

SIGNATURE = (
    "(int64[batch,tokens] ids, int64[batch,tokens] mask, float[batch,tokens,4] rows)"
    " => (float[batch,tokens,4] y)"
)
TABLE = f32(40, 4)
NUMBERS: dict[str, Any] = {
    "zero": np.array(0),
    "one": np.array(1),
    "half": np.float32(0.5),
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n2": np.array([2]),
    "last": np.array([-1]),
    "all": np.arange(40),
    "rates": f32(4, seed=3),
    "sizes": np.array([0, 0, 4]),
}
#: How many tokens there are, as a number and as a vector.
COUNT = "count = Shape <start = 1, end = 2> (ids) number = Squeeze (count) "
#: Ways to count, each ``c``: places from ``offset`` on, of int64 [1 or batch, tokens].
COUNTED = {
    "a range": "end = Add (number, offset) r = Range (offset, end, one) c = Unsqueeze (r, n0)",
    "a sum of the mask": "s = CumSum (mask, one) t = Sub (s, one) c = Add (t, offset)",
    "a product of the sum and the mask": (
        "s = CumSum (mask, one) t = Sub (s, one) u = Add (t, offset) m = Mul (u, mask) "
        "v = Sub (one, mask) w = Mul (v, one) c = Add (m, w)"
    ),
    "a slice of all places": (
        "a = Unsqueeze (all, n0) e = Add (count, offset1) c = Slice (a, offset1, e, n1)"
    ),
    "for each sequence": (
        "end = Add (number, offset) r = Range (offset, end, one) s = Shape (ids) c = Expand (r, s)"
    ),
}
READERS = {
    "a table": "y = Gather (table, c)",
    "a table, past a row's axis": "d = Unsqueeze (c, n1) g = Squeeze (d, n1) y = Gather (table, g)",
    "as a column": (
        "f = Cast <to = 1> (c) g = Unsqueeze (f, last) h = Mul (g, rates) y = Add (rows, h)"
    ),
    "as a row": (
        "f = Cast <to = 1> (c) g = Unsqueeze (f, n1) h = Transpose <perm = [0, 2, 1]> (g) "
        "k = Mul (h, rates) y = Add (rows, k)"
    ),
}


def model_of(nodes: str, offset: int = 0, *, across: bool = False) -> tuple[ir.Model, Source]:
    given = {**NUMBERS, "offset": np.array(offset), "offset1": np.array([offset])}
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in given.items() if name in words}
    weights = {"table": TABLE} if "table" in words else {}
    model = exported(SIGNATURE, nodes, weights, used)
    for value in (v for node in model.graph for v in node.outputs):
        shape = dims(value)  # inference of shapes knows nothing of a Range, nor of slices of one
        known = [d if isinstance(d, int) or d == "batch" else "tokens" for d in shape]
        value.shape = ir.Shape(
            [1, *known[1:]] if known[:2] == ["tokens"] * 2 and not across else known
        )
    ids, mask, _ = model.graph.inputs
    return model, Source(model.graph, ids, mask, None, "batch", "tokens")


def feeds(model: ir.Model, positions: Array | None = None) -> dict[str, Array]:
    """Two sequences of 8 tokens, without padding."""
    given: dict[str, Array] = {
        "ids": np.full((2, 8), 5),
        "mask": np.ones((2, 8), np.int64),
        "rows": f32(2, 8, 4),
        "position_ids": np.tile(np.arange(8), (2, 1)) if positions is None else positions,
    }
    names = {str(value.name) for value in model.graph.inputs}
    return {name: array for name, array in given.items() if name in names}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("counted", COUNTED)
def test_whatever_counts_tokens_reads_the_input(counted: str, reader: str) -> None:
    for offset in (0, 1, 2, 7):
        nodes = f"{COUNT} {COUNTED[counted]} {READERS[reader]}"
        before, _ = model_of(nodes, offset)
        model, source = model_of(nodes, offset)
        report = PassReport()
        value = number_positions(model, source, report)
        assert model.graph.inputs[1] is value
        assert value.name == "position_ids"
        assert report.count > 0
        left = {node.op_type for node in model.graph}
        assert not left & {"Range", "CumSum", "Shape", "Expand"}, left
        (wanted,) = run(before, feeds(before))
        (found,) = run(model, feeds(model))
        wide = np.broadcast_to(wanted, found.shape)
        np.testing.assert_allclose(found, wide, rtol=1e-6, atol=1e-6)
        assert wrong_shapes(model, feeds(model)) == []
        # Each token by its own place, wherever it stands.
        places = np.random.default_rng(offset).integers(0, 8, (2, 8))
        moved = feeds(model, places)
        still = {**feeds(before), "rows": np.zeros((2, 8, 4), np.float32)}
        (table,) = run(before, {k: still[k] for k in feeds(before)})
        rows = moved.get("rows", 0.0) if "rows" in nodes.split("y =")[1] else 0.0
        (found,) = run(model, moved)
        np.testing.assert_allclose(found, rows + table[0][places], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "counted",
    [
        "end = Add (number, number) r = Range (zero, end, two) c = Unsqueeze (r, n0)",
        "d = Sub (number, one) r = Range (d, minus, minus) c = Unsqueeze (r, n0)",
        "f = Cast <to = 6> (ids) c = Cast <to = 7> (f)",
        "c = CumSum (ids, one)",
        "r = Range (zero, number, one) s = Add (r, number) c = Unsqueeze (s, n0)",
    ],
)
def test_other_numbers_stay(counted: str) -> None:
    """Every second place, places from the end, numbers of the tokens themselves, and places from
    as many tokens on as there are."""
    NUMBERS.update(two=np.array(2), minus=np.array(-1))
    nodes = f"{COUNT} {counted} f1 = Cast <to = 1> (c) g = Unsqueeze (f1, last) y = Add (rows, g)"
    model, source = model_of(nodes)
    remove_unused(model)
    before = [node.op_type for node in model.graph]
    report = PassReport()
    number_positions(model, source, report)
    assert report.count == 0
    assert [node.op_type for node in model.graph] == before


def test_fractions_of_places_are_made_of_places() -> None:
    nodes = (
        f"{COUNT} r = Range (zero, number, one) f = Cast <to = 1> (r) h = Add (f, half) "
        "c = Unsqueeze (h, n0) g = Unsqueeze (c, last) y = Add (rows, g)"
    )
    model, source = model_of(nodes)
    report = PassReport()
    number_positions(model, source, report)
    assert report.count == 0, "one and a half is no place, and a range has no axis of sequences"


def test_distances_between_places_stay() -> None:
    """A row for each sequence would not fit where places lie across each other."""
    nodes = (
        f"{COUNT} r = Range (zero, number, one) j = Unsqueeze (r, n0) i = Unsqueeze (r, n1) "
        "d = Sub (i, j) f = Cast <to = 1> (d) a = Abs (f) s = ReduceSum <keepdims = 0> (a, n1) "
        "u = Unsqueeze (s, n0) g = Unsqueeze (u, last) y = Add (rows, g)"
    )
    model, source = model_of(nodes, across=True)
    before, _ = model_of(nodes, across=True)
    number_positions(model, source, PassReport())
    wanted, found = run(before, feeds(before)), run(model, feeds(model))
    np.testing.assert_allclose(found[0], wanted[0])
    assert "Range" in {node.op_type for node in model.graph}


@pytest.mark.parametrize("index", [0, 3])
def test_one_integer_for_all_tokens_is_one_row(index: int) -> None:
    """As of types of tokens, where a model is given none: [tokens, D] becomes [D]."""
    nodes = (
        f"{COUNT} s = Shape (ids) c = Expand (offset, s) t = Gather <axis = 0> (table, c) "
        "y = Add (rows, t)"
    )
    before, _ = model_of(nodes, index)
    model, source = model_of(nodes, index)
    report = PassReport()
    number_positions(model, source, report)
    assert report.details == {"one row for all tokens": 1}
    assert [node.op_type for node in model.graph] == ["Add"]
    np.testing.assert_array_equal(run(model, feeds(model))[0], run(before, feeds(before))[0])


@pytest.mark.parametrize(
    ("nodes", "read"),
    [
        ("t = Gather <axis = 1> (turned, c) y1 = Transpose <perm = [1, 2, 0]> (t)", "another axis"),
        ("t = Gather (c, n0) f = Cast <to = 1> (t) y1 = Unsqueeze (f, last)", "its own elements"),
    ],
)
def test_what_is_no_lookup_of_a_row_stays(nodes: str, read: str) -> None:
    NUMBERS["turned"] = np.ascontiguousarray(TABLE.T)
    text = f"s = Shape (ids) c = Expand (offset, s) {nodes} y = Add (rows, y1)"
    model, source = model_of(text, 3)
    before, _ = model_of(text, 3)
    report = PassReport()
    number_positions(model, source, report)
    assert report.count == 0, read
    np.testing.assert_array_equal(run(model, feeds(model))[0], run(before, feeds(before))[0])
