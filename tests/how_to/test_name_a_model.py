"""docs/how-to/name-a-model.md: its commands run as they stand, against a stand-in of the Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from tests.cli.conftest import Optc
from tests.how_to.support.console import installed, run_page
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
    with hub(tiny_model, tmp_path / "cache", small=tiny_model) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)  # of hf, which is another process
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        programs = {"hf": installed}
        assert run_page("name-a-model", optc, tmp_path, monkeypatch, programs) == 10
    assert (tmp_path / "tiny/model.safetensors").is_file()
    drafted = Artifact.open(tmp_path / "artifacts/drafted")
    assert [engine.role for engine in drafted.manifest.engines] == ["target", "draft"]
