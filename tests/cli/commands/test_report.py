"""optc report: the page of an artifact, measured here or from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.artifact.pages.pages import UNSEEN, read_page
from tests.artifact.pages.sample import BENCH, report
from tests.artifact.toy import forge, write_toy
from tests.cli.commands.test_measure_commands import FRAME, MeasurableStub, backend
from tests.cli.conftest import Optc
from tests.cli.test_untrusted_text import EVIL
from tests.runtime.support.artifacts import write_artifact

__all__ = ["backend"]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = write_toy(tmp_path / "toy").path
    (path / "report.json").write_text(json.dumps(report()))
    return path


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH))
    return path


def test_a_page_with_a_profile_from_a_file(
    optc: Optc, toy: Path, bench: Path, tmp_path: Path
) -> None:
    output = tmp_path / "page.html"
    found = optc("report", toy, "-o", output, "--bench", bench)
    assert (found.code, found.out, found.err) == (0, f"{output}\n", "")
    page = read_page(output.read_text("utf-8"))
    assert "decode\u202f\u00d7\u202f8" in page.section("roofline").text
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []
    value = optc("report", toy, "-o", output, "--bench", bench, "--json").json
    assert set(value) == {"artifact", "digest", "output", "bytes", "sections"} | FRAME
    assert value["bytes"] == output.stat().st_size
    assert value["sections"][:3] == ["warnings", "gates", "ladder"]


def test_a_name_in_the_store(
    optc: Optc, toy: Path, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_STORE", str(toy.parent))
    assert optc("report", "toy", "-o", bench.with_suffix(".html"), "--bench", bench).code == 0
    assert "toi: no such artifact (did you mean 'toy'?)" in optc("report", "toi").err


def test_what_is_measured_here(optc: Optc, backend: MeasurableStub, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    artifact = write_artifact(tmp_path / "a").path
    outcome = optc("report", artifact, "-o", output, "--json")
    assert outcome.json["warnings"] == []
    page = read_page(output.read_text("utf-8"))
    assert "int_matmul_0 20x10" in page.section("step-time").text
    assert "prefill\u202f16" in page.section("roofline").text
    assert backend.profiler.closed
    assert "profile" in outcome.err


def test_an_engine_that_does_not_run_here_leaves_out_its_profile(
    optc: Optc, toy: Path, tmp_path: Path
) -> None:
    """Its code is nothing that can be loaded."""
    forge(toy, lambda m: m["engines"][0]["target"].update(features=["of_no_cpu"]))
    output = tmp_path / "page.html"
    outcome = optc("report", toy, "-o", output)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: no profile: ")
    page = read_page(output.read_text("utf-8"))
    assert "Not measured: " in page.section("roofline").text
    assert "of_no_cpu" in page.section("roofline").text


def test_nothing_is_measured_where_nobody_wants_it(optc: Optc, toy: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    first = optc("report", toy, "-o", output, "--no-measure")
    text = output.read_bytes()
    assert (first.code, first.err) == (0, "")
    assert optc("report", toy, "-o", output, "--no-measure").code == 0
    assert output.read_bytes() == text


def test_a_damaged_report_hides_nothing_of_the_manifest(
    optc: Optc, toy: Path, tmp_path: Path
) -> None:
    (toy / "report.json").write_text('{"gates": 7}')
    output = tmp_path / "page.html"
    outcome = optc("report", toy, "-o", output, "--no-measure")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: the report is left out: ")
    assert "toy (llama)" in read_page(output.read_text("utf-8")).section("identity").text


def test_a_damaged_part_is_said(optc: Optc, toy: Path, tmp_path: Path) -> None:
    (toy / "report.json").write_text(json.dumps(report(stages={"import": "long"})))
    outcome = optc("report", toy, "-o", tmp_path / "page.html", "--no-measure")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: Pipeline is left out: report.json: stages: ")


def test_names_of_an_artifact_are_shown_only(optc: Optc, toy: Path, tmp_path: Path) -> None:
    forge(toy, lambda m: m.update(name=EVIL, pipeline=EVIL))
    forge(toy, lambda m: m["engines"][0].update(name=EVIL, backend=EVIL))
    output = tmp_path / "page.html"
    outcome = optc("report", toy, "-o", output)
    assert outcome.code == 0
    assert not set("\x1b\x07\x9b\u202e") & set(outcome.out + outcome.err)
    assert not UNSEEN.search(read_page(output.read_text("utf-8")).text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "page.txt"), "--output: 'page.txt' does not end in .html or .htm"),
        (("-o", "absent/page.html"), "--output: there is no folder absent"),
        (("-o", "folder.html"), "--output: folder.html is a folder"),
        (("--bench", "absent.json"), "absent.json: cannot be read: No such file or directory"),
        (("--bench", "text.json"), "text.json: is not JSON: "),
        (("--bench", "other.json"), "other.json: expected 'object', got 'array'"),
        (("--bench", "wrong.json"), "profile[0]: object missing required field 'phase'"),
        (("--bench", "text.json", "--no-measure"), "--no-measure: changes nothing with --bench"),
        (("--engine", "x", "--no-measure"), "--engine: nothing is measured"),
        (("--engine", "x"), "has no engine 'x' (one of target)"),
    ],
)
def test_what_is_wrong_is_said(
    optc: Optc,
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    for name, text in {"text": "{", "other": "[]", "wrong": '{"profile": [{}]}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    found = optc("report", toy, *arguments)
    assert (found.code, message in found.err) == (2, True), found.err
    assert not (tmp_path / "report.html").exists()


def test_a_file_that_cannot_be_written(
    optc: Optc, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    found = optc("report", toy, "-o", tmp_path / "page.html", "--no-measure")
    assert found.code == 2
    assert "page.html: cannot be written: No space left on device" in found.err


def test_there_is_no_artifact(optc: Optc, tmp_path: Path) -> None:
    assert optc("report", tmp_path / "absent", "-o", tmp_path / "page.html").code == 2
