"""Decisions in the terminal."""

from __future__ import annotations

import pytest

from optc.cli.judged.decisions import decision_tables
from optc.proof.conditions.decisions import decisions_of
from tests.artifact.pages.sample import DECISIONS
from tests.cli.test_tables import shown


def test_a_table_has_the_counts_and_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [" ".join(words) for words in shown(capsys, *decision_tables({"target": DECISIONS}))]
    assert lines[0] == "decisions: 120, 100 of them firm, 2 flipped"
    assert lines[1].split() == ["where", "what", "float32", "engine", "margin", "left"]
    assert lines[2].endswith(
        "get_weather.unit 'celsius' 0.8 → 0.2 'fahrenheit' 0.1 → 0.6 1.9 -0.4 FLIPPED"
    )
    assert " value " in lines[3], "what it is about is not said, so its kind is"


def test_none_flipped_and_several_engines(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = {**DECISIONS, "flips": 0, "worst": DECISIONS["worst"] * 9}
    lines = shown(capsys, *decision_tables({"a": quiet, "b": quiet}))
    titles = [" ".join(words) for words in lines if words[0] == "decisions"]
    assert titles == [f"decisions of {n}: 120, 100 of them firm, none flipped" for n in "ab"]
    assert len(lines) == 2 * (2 + 5), "the report has more"
    assert decision_tables({}) == []


def test_decisions_are_found_in_a_report() -> None:
    own = {"answers": {"decisions": DECISIONS}}
    absent = {"answers": {"not_measured": "the model has no chat template"}}
    found = decisions_of({"a": own, "b": {"lowered-onnx": own}, "c": absent, "d": {"tokens": 1}})
    assert found == {"a": DECISIONS, "b": DECISIONS}
