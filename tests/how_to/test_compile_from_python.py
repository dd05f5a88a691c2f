"""docs/how-to/compile-from-python.md: its Python runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to.support.console import run_page
from tests.support.stub import StubBackend


def test_the_page_runs(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tiny").symlink_to(tiny_model)
    assert run_page("compile-from-python", optc, tmp_path, monkeypatch) == 2
    said = capfd.readouterr().out.splitlines()
    assert said[1] == "artifacts/made int8-fused"
    assert said[2].startswith("4 [")
    assert (tmp_path / "artifacts/made/manifest.json").is_file()
    assert not (tmp_path / "artifacts/exact").exists()
