"""docs/how-to/read-a-report.md: its commands and its Python run as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.pages.artifact_page import SECTIONS
from optc.cli.commands import tune
from tests.artifact.pages.pages import read_page
from tests.artifact.pages.sample import report
from tests.artifact.toy import list_files
from tests.cli.commands.test_measure_commands import MeasurableStub, backend
from tests.cli.conftest import Optc
from tests.how_to import PAGES
from tests.how_to.support.console import run_page
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.artifacts import write_artifact

__all__ = ["backend"]


def test_the_page_runs(
    optc: Optc, backend: MeasurableStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_artifact(tmp_path / "artifacts/model").path
    (model / "engines/target/engine.bin").write_bytes(b"engine")  # what the stub loads
    list_files(model)
    (model / "report.json").write_text(json.dumps(report()))
    times = step_times(step=0.005, row=0.001)
    monkeypatch.setattr(
        "optc.proof.simulate.artifact_times.artifact_step_times", lambda *a, **o: times
    )
    monkeypatch.setattr(tune, "_REQUESTS", 20)
    assert run_page("read-a-report", optc, tmp_path, monkeypatch) == 10
    for name in ("report", "unmeasured", "profile", "tuned"):
        read_page((tmp_path / f"{name}.html").read_text("utf-8"))
    page = read_page((tmp_path / "unmeasured.html").read_text("utf-8"))
    assert "gates" in Artifact.open(model)._repr_html_()
    assert [h.text for h in page.all("h2")] == [t for t in SECTIONS if t not in MEASURED]


MEASURED = {"Where the time of a step goes"}


def test_the_page_lists_the_sections() -> None:
    text = (PAGES / "read-a-report.md").read_text("utf-8")
    listed = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    for title in SECTIONS:
        known = [name for name in listed if name.lower() in title.lower()]
        assert known or title in ("Warnings", "Engines"), title
