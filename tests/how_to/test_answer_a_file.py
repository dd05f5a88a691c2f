"""docs/how-to/answer-a-file.md: its commands and its Python run as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to import PAGES
from tests.how_to.support.console import run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_page("answer-a-file", optc, long_talker, monkeypatch) == 6
    answers = (long_talker / "answers.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["line"] for line in answers] == [1, 2, 3]
    assert json.loads(answers[1])["custom_id"] == "stack"
    bad = json.loads((long_talker / "some.answers.jsonl").read_text("utf-8").splitlines()[1])
    page = " ".join((PAGES / "answer-a-file.md").read_text("utf-8").split())
    assert json.dumps(bad) in page
