"""Rows of a table, looked up by other operators or once for all sequences: the values stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.encoded.index_rows import index_by_sequence, index_rows
from tests.passes.canonicalize.texts import evaluate, exported
from tests.support.ir_text import Array, f32, nodes_text

TABLE = f32(5, 4)
POSITIONS = np.array([4, 0, 2])
IDS = np.array([[4, 0, 2], [1, 1, 3]])


def check(model: ir.Model, change: Callable[[ir.Graph], None], **inputs: Array) -> None:
    """A change keeps the values."""
    before = evaluate(model, inputs)
    change(model.graph)
    np.testing.assert_array_equal(evaluate(model, inputs), before)


def by_sequence(graph: ir.Graph) -> None:
    index_by_sequence(graph, "S")


def added(reader: str, tokens: str = "S") -> ir.Model:
    return exported(
        f"(float[B,S,4] hidden, int64[{tokens}] positions) => (float[B,S,4] y)",
        f"rows = Gather <axis: int = 0> (table, positions) {reader}",
        constants={"table": TABLE},
    )


def test_rows_that_are_added_to_every_sequence_get_an_axis_of_sequences() -> None:
    model = added("y = Add (hidden, rows)")
    check(model, by_sequence, hidden=f32(2, 3, 4), positions=POSITIONS)
    rows = next(node for node in model.graph if node.op_type == "Gather" and node.outputs[0].uses())
    assert rows.inputs[1].shape == ir.Shape([1, "S"])
    assert rows.outputs[0].shape == ir.Shape([1, "S", 4])


@pytest.mark.parametrize(
    ("reader", "tokens"),
    [
        ("y = Add (hidden, rows)", "T"),
        ("y = Max (hidden, rows)", "S"),
        ("z = Neg (rows) y = Add (hidden, z)", "S"),
    ],
)
def test_rows_of_others_stay_as_they_are(reader: str, tokens: str) -> None:
    model = added(reader, tokens)
    before = nodes_text(model)
    by_sequence(model.graph)
    assert nodes_text(model) == before


@pytest.mark.parametrize("axis", [-1, 2])
def test_rows_by_one_coordinate(axis: int) -> None:
    model = exported(
        "(int64[B,S] ids) => (float[B,S,4] y)",
        "column = Unsqueeze (ids, axis) y = GatherND (table, column)",
        constants={"table": TABLE, "axis": np.array([axis])},
    )
    report = PassReport()
    check(model, lambda graph: index_rows(graph, report), ids=IDS)
    assert report.details == {"rows of a table": 1}
    made = model.graph.outputs[0].producer()
    assert made is not None
    assert (made.op_type, made.inputs[1]) == ("Gather", model.graph.inputs[0])
