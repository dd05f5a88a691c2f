"""The ladder as a table: every rung, the objective's prediction, and what was measured."""

from __future__ import annotations

import pytest

from optc.cli.judged.ladder_tables import ladder_tables
from optc.compiling.ladder.rungs import OBJECTIVES
from tests.artifact.pages.sample import LADDER
from tests.cli.test_tables import shown


def test_every_rung_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    title, columns, *rows = shown(capsys, *ladder_tables(LADDER))
    assert title == ["ladder", "for", "decode,", "kl_mean=0.01,", "top1_agreement=0.9"]
    assert " ".join(columns) == (
        "recipe decode/s at most artifact kl_mean top1_agreement outcome why"
    )
    assert [row[0] for row in rows] == ["tiny", "small", "exact", "slow", "odd"]
    assert rows[1][:2] == ["small", "120.5"]
    assert "0.5" in rows[1]
    assert rows[-1] == ["odd", "-", "-", "left", "out", "it", "suits", "nobody"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_its_column(objective: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, columns, *rows = shown(capsys, *ladder_tables({**LADDER, "objective": objective}))
    heading = {"decode": "decode/s", "prefill": "prefill/s", "size": "artifact"}
    assert columns[1] == heading.get(objective, objective)
    assert len(rows) == 5


def test_without_a_ladder_there_is_no_table() -> None:
    assert ladder_tables(None) == []
