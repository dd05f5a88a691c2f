"""--plot of bench and tune."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from optc.cli.commands import tune
from tests.artifact.pages.charts.drawing import SVG
from tests.artifact.pages.pages import read_page
from tests.artifact.toy import list_files
from tests.cli.commands.test_measure_commands import SHORT, TRAFFIC, MeasurableStub, backend
from tests.cli.commands.test_tune import NEVER, WANTED, artifact
from tests.cli.commands.test_tune import TRAFFIC as TUNED
from tests.cli.conftest import Optc
from tests.runtime.support.artifacts import write_artifact

__all__ = ["artifact", "backend"]


@pytest.mark.parametrize(
    ("options", "plots"),
    [
        (SHORT, 2),
        (("--profile", "--prompt-tokens", "16", "--concurrency", "1"), 2),
        (("--workload", TRAFFIC), 1),
    ],
)
def test_bench(
    optc: Optc, backend: MeasurableStub, tmp_path: Path, options: tuple[str, ...], plots: int
) -> None:
    made = write_artifact(tmp_path / "made").path
    (made / "engines/target/engine.bin").write_bytes(b"engine")  # what the stub loads
    list_files(made)
    drawing, page = tmp_path / "b.svg", tmp_path / "b.html"
    assert optc("bench", made, *options, "--plot", drawing).code == 0
    root = ElementTree.fromstring(drawing.read_bytes())
    assert len(root.findall(f"{SVG}svg")) == plots
    assert optc("bench", made, *options, "--plot", page, "--json").json["warnings"] == []
    read = read_page(page.read_text("utf-8"))
    assert read.all("h1")[0].text == f"optc bench {made}"
    assert len(read.all("section")) == plots


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "_REQUESTS", 20)


@pytest.mark.usefixtures("few_requests")
def test_tune(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    assert optc("tune", artifact, *WANTED, *TUNED, "--plot", page).code == 0
    text = read_page(page.read_text("utf-8")).section("candidates").text
    assert "recommended" in text


@pytest.mark.usefixtures("few_requests")
def test_tune_draws_what_meets_no_objective(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    assert optc("tune", artifact, *NEVER, *TUNED, "--plot", page).code == 4
    assert "none is recommended" in read_page(page.read_text("utf-8")).text


@pytest.mark.parametrize("name", ["b.png", "absent/b.svg"])
def test_a_file_that_cannot_be_written_is_refused_first(
    optc: Optc, artifact: Path, tmp_path: Path, name: str
) -> None:
    for command in (("bench",), ("tune", *WANTED, *TUNED)):
        found = optc(*command, artifact, "--plot", tmp_path / name)
        assert (found.code, "--plot: " in found.err) == (2, True)
        assert "·" not in found.err
