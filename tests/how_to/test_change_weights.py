"""docs/how-to/change-weights.md: its commands run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc import registry
from tests.artifact.patches.test_patches import contents
from tests.artifact.toy import forge
from tests.artifact.trust.keys import write_keys
from tests.cli.conftest import Optc
from tests.how_to.support.console import run_page
from tests.runtime.support.artifacts import ToyBackend, write_artifact


def test_the_page_runs(optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    for name, weights in (("monday", "1"), ("tuesday", "2")):
        path = write_artifact(tmp_path / "artifacts" / name, weights=weights).path
        forge(path, lambda manifest: manifest.update(gated=True))
    write_keys(tmp_path)
    assert run_page("change-weights", optc, tmp_path, monkeypatch, {}) == 4
    artifacts = tmp_path / "artifacts"
    assert contents(artifacts / "tuesday-again") == contents(artifacts / "tuesday")
