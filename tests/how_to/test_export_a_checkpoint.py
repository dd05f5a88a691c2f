"""docs/how-to/export-a-checkpoint.md: its commands run as they stand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from optc import registry
from tests.cli.conftest import Optc
from tests.compiling.export.conftest import Made, kinds
from tests.how_to.support.console import run_page

__all__ = ["kinds"]


def test_the_page_runs(
    optc: Optc, kinds: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kinds["qwen3"]
    monkeypatch.setattr(registry, "backend", {"toy": made.backend}.__getitem__)
    shutil.copytree(made.artifact.path, tmp_path / "artifacts/model")
    assert run_page("export-a-checkpoint", optc, tmp_path, monkeypatch, {}) == 3
    assert (tmp_path / "model-folder/config.json").is_file()
    assert (tmp_path / "model.gguf").is_file()
    assert (tmp_path / "model-packed/config.json").is_file()
