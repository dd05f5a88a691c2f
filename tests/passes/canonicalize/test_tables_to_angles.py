"""`tables-to-angles` on text, and against the table."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.tables_to_angles import TablesToAngles
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import Array

FREQUENCIES = 10_000.0 ** -np.linspace(0, 1, 4, endpoint=False)
ANGLES = np.arange(300)[:, None].astype(np.float32) * FREQUENCIES.astype(np.float32)
SIN, COS = np.sin(ANGLES), np.cos(ANGLES)
SIGNATURE = "(int64[B,S] position_ids) => (float[B,S,8] y)"
GATHER = "y = Gather <axis: int = 0> (table, position_ids)"
GATHER_ND = "i = Unsqueeze (position_ids, last) y = GatherND (table, i)"


def model(nodes: str, table: Array) -> ir.Model:
    constants = {"table": table.astype(np.float32), "last": np.array([-1])}
    return exported(SIGNATURE, nodes, constants={k: v for k, v in constants.items() if k in nodes})


@pytest.mark.parametrize("nodes", [GATHER, GATHER_ND])
def test_rows_of_a_table_are_cosines_and_sines(nodes: str) -> None:
    text, report = after(model(nodes, np.concatenate([SIN, COS], axis=1)), TablesToAngles())
    assert report.details == {"table": 1}
    assert [line.split("= ")[1].split(" ")[0] for line in text.strip().splitlines()] == [
        *("Cast", "Unsqueeze", "Mul", "Sin", "Cos", "Concat")
    ]
    first = text.strip().splitlines()[-1]
    assert first.index(text_name(text, "Sin")) < first.index(text_name(text, "Cos"))


def text_name(text: str, operator: str) -> str:
    """What the result of an operator is called."""
    (line,) = (line for line in text.splitlines() if f"= {operator} " in line)
    return line.split("=")[0].split()[-1]


@pytest.mark.parametrize("parts", [(SIN, COS), (COS, SIN)])
@pytest.mark.parametrize("nodes", [GATHER, GATHER_ND])
def test_they_are_those_of_the_table(nodes: str, parts: tuple[Array, Array]) -> None:
    positions = np.array([[0, 1, 2, 77], [150, 255, 256, 299]])
    changed = model(nodes, np.concatenate(parts, axis=1))
    assert unchanged(changed, {"position_ids": positions}, TablesToAngles()) < 1e-4


@pytest.mark.parametrize(
    "table",
    [
        np.concatenate([SIN, 1.1 * COS], axis=1),
        np.concatenate([SIN, COS[:, ::-1]], axis=1),
        np.concatenate([np.sin(ANGLES**2), np.cos(ANGLES**2)], axis=1),
        np.concatenate([SIN, SIN], axis=1),
        np.concatenate([SIN, COS, COS[:, :1]], axis=1),
        np.concatenate([SIN, COS], axis=1)[:1],
    ],
    ids=["scaled", "another order", "no product", "no cosines", "odd", "one row"],
)
def test_other_tables_stay(table: Array) -> None:
    found = model(GATHER, table)
    assert TablesToAngles().run(found).count == 0
    assert [node.op_type for node in found.graph] == ["Gather"]


def test_rows_that_no_positions_choose_stay() -> None:
    nodes = "i = Add (position_ids, position_ids) y = Gather <axis: int = 0> (table, i)"
    found = model(nodes, np.concatenate([SIN, COS], axis=1))
    assert TablesToAngles().run(found).count == 0
