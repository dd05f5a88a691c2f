"""docs/how-to/name-a-model.md: its commands run as they stand, against a stand-in of the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to.console import run_page
from tests.importer.hub_server import hub
from tests.support.stub import StubBackend


def test_the_page_runs(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hub(tiny_model, tmp_path / "cache"):
        assert run_page("name-a-model", optc, tmp_path, monkeypatch) == 6
