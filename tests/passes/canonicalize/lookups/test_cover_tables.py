"""`cover-tables` on text."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.lookups.cover_tables import CoverTables
from tests.passes.canonicalize.texts import after, exported
from tests.support.ir_text import expected, f32
from tests.support.ragged import run

SIGNATURE = "(int64[B,S] input_ids) => (float[B,S,4] y)"
CONSTANTS = {"zero": np.array(0), "seven": np.array(7), "two": np.array(2)}
INSIDE = """
    low = GreaterOrEqual (input_ids, zero) high = Less (input_ids, seven)
    inside = And (low, high) known = Where (inside, input_ids, two)
    """
IDS = np.array([[0, 6, 7, 9], [8, 2, 1, 3]])


def model(index: str) -> ir.Model:
    nodes = f"a = Gather (whole, input_ids) {index} b = Gather (part, known) y = Add (a, b)"
    return exported(SIGNATURE, nodes, {"whole": f32(10, 4), "part": f32(7, 4, seed=1)}, CONSTANTS)


def test_tokens_beyond_a_table_have_one_of_its_rows() -> None:
    before, found = model(INSIDE), model(INSIDE)
    wanted = run(before, {"input_ids": IDS})[0]
    text, report = after(found, CoverTables())
    assert text == expected("""
        t0 = Gather (whole, input_ids)
        t1 = Gather (part.of_tokens, input_ids)
        y = Add (t0, t1)
        """)
    assert report.details == {"table": 1}
    np.testing.assert_array_equal(run(found, {"input_ids": IDS})[0], wanted)


def test_rows_are_read_on_demand() -> None:
    found = model(INSIDE)
    CoverTables().run(found)
    table = found.graph.initializers["part.of_tokens"].const_value
    assert isinstance(table, LazyWeight)
    assert table.rows_shape == (10, 4)
    part = f32(7, 4, seed=1)
    np.testing.assert_array_equal(table.read_rows(5, 9), part[[5, 6, 2, 2]])


@pytest.mark.parametrize(
    "index",
    [
        "known = Add (input_ids, two)",  # rows that the table has not
        "known = Sub (zero, input_ids)",
        "known = Neg (input_ids)",  # no operator that I know
    ],
)
def test_others_stay(index: str) -> None:
    assert CoverTables().run(model(index)).count == 0


def test_the_vocabulary_must_be_known() -> None:
    nodes = f"{INSIDE} y = Gather (part, known)"
    found = exported(SIGNATURE, nodes, {"part": f32(7, 4)}, CONSTANTS)
    assert CoverTables().run(found).count == 0
