"""Rows of the table: their passes are there, and their names are their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pruning.__main__ import chosen, keep, known, merged
from benchmarks.pruning.rows import ROWS
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline


def test_every_row_is_a_pipeline_in_a_possible_order() -> None:
    for row in ROWS:
        read_pipeline(["canonicalize", *row.passes], registry).validate()


def test_names_are_distinct_and_goals_belong_to_some() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    wanted = {row.name: row.most for row in ROWS if row.most is not None}
    assert wanted["ADMM, sequential, 50 %"] == 1.035
    assert all(most > 1 for most in wanted.values())


def test_parts_are_chosen_by_text() -> None:
    assert chosen(ROWS, []) == ROWS
    found = chosen(ROWS, ["ADMM, sequential", "magnitude, 2:4"])
    assert {row.method for row in found} == {"ADMM, sequential", "magnitude"}
    with pytest.raises(SystemExit, match="no row is called 'ADAM'; there are: magnitude, 50 %"):
        chosen(ROWS, ["ADAM"])


def test_a_row_that_is_measured_again_takes_its_place() -> None:
    first, second, third = ({"method": r.method, "amount": r.amount, "n": 0} for r in ROWS[:3])
    strange = {"method": "other", "amount": "1", "n": 0}
    found = merged(ROWS, [third, strange, first], second)
    assert found == [first, second, third, strange]
    assert merged(ROWS, found, first | {"n": 1})[0]["n"] == 1


def test_parts_are_merged_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert known(path)["rows"] == []
    rows = [{"method": row.method, "amount": row.amount, "n": 0} for row in ROWS[:2]]
    for row in reversed(rows):
        keep(path, row)
    assert known(path)["rows"] == rows
    assert known(path)["model"] == "pycode"
