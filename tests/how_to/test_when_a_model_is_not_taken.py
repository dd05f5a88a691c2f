"""docs/how-to/when-a-model-is-not-taken.md: its command runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to.support.console import run_page


def test_the_page_runs(optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_page("when-a-model-is-not-taken", optc, tmp_path, monkeypatch) == 1
