"""docs/how-to/judge-in-ci.md: its commands run as they stand."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import StoredTensor
from optc.proof.conditions.bench_figures import RESULTS, WORKLOAD
from tests.cli.conftest import Optc
from tests.how_to import PAGES
from tests.how_to.support.console import run_page
from tests.proof.conditions.differences.artifacts import gate
from tests.runtime.support.artifacts import ToyBackend, write_artifact


class StoringToy(ToyBackend):
    """The toy, whose file holds two tensors."""

    def stored_tensors(self, engine: EngineEntry, files: EngineFiles) -> list[StoredTensor]:
        path = files.path("engine.bin")
        return [
            StoredTensor("a", "int8", (1,), path, 0, 1),
            StoredTensor("b", "int8", (2,), path, 1, 2),
        ]


def rewritten(path: Path, engine: bytes, kl: float) -> Artifact:
    """The toy's artifact at ``path`` with another engine, and a gate."""
    made = write_artifact(path)
    with ArtifactWriter(path, force=True) as writer:
        for entry in made.manifest.files:
            (writer.folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (writer.folder / entry.path).write_bytes((path / entry.path).read_bytes())
        (writer.folder / "engines/target/engine.bin").write_bytes(engine)
        manifest = replace(made.manifest, files=writer.hashed_files())
        return writer.commit(manifest, {"gates": [gate("kl_mean", kl, bound=0.02)]})


def test_the_page_runs(optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", lambda name: StoringToy())
    rewritten(tmp_path / "yesterday", b"toy", 0.01)
    rewritten(tmp_path / "today", b"tot", 0.012)
    assert run_page("judge-in-ci", optc, tmp_path, monkeypatch) == 13
    assert "**FAILED**: 1 of 1" in (tmp_path / "summary.md").read_text()
    verdicts = ElementTree.parse(tmp_path / "verdicts.xml").getroot()
    assert verdicts.attrib["failures"] == "1"


def test_the_metrics_of_the_page_exist() -> None:
    page = (PAGES / "judge-in-ci.md").read_text("utf-8")
    rows = dict(line.strip("| ").split(" | ", 1) for line in page.splitlines() if " | " in line)
    for command, metrics in (("`optc bench`", RESULTS), ("`optc bench --workload`", WORKLOAD)):
        named = [word.strip("`,") for word in rows[command].split() if word.startswith("`")]
        assert set(named) - {"workload"} <= set(metrics)
