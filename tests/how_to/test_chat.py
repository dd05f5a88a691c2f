"""docs/how-to/chat.md: its commands and its Python run as they stand."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from optc.cli.chat.chat_commands import COMMANDS
from tests.cli.conftest import Optc
from tests.how_to import PAGES
from tests.how_to.support.console import run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("What is a heap?\n/exit\n"))
    assert run_page("chat", optc, long_talker, monkeypatch, {}) == 7


def test_the_page_lists_the_commands() -> None:
    page = (PAGES / "chat.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        assert f"/{name} {command.argument}".strip() in page
