"""docs/how-to/keep-and-share.md: its commands run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to.console import run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTC_STORE", raising=False)
    assert run_page("keep-and-share", optc, long_talker, monkeypatch) == 9
    assert [path.name for path in (long_talker / "artifacts").iterdir()] == ["model"]
