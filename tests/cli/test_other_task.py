"""Commands about an artifact of a task that this optc does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import UnavailableError
from tests.artifact.tasks.other_task import write_labels
from tests.cli.conftest import Optc

UNKNOWN = "this optc knows no task 'image-classification'"


@pytest.mark.parametrize("command", ["bench", "run", "verify"])
def test_what_runs_engines_refuses_it(tmp_path: Path, optc: Optc, command: str) -> None:
    a = write_labels(tmp_path / "a").path
    more = {"bench": [], "run": ["--prompt", "hello"], "verify": ["--gates", "--reference", a]}
    done = optc(command, a, *more[command])
    assert done.code == UnavailableError.exit_code
    assert UNKNOWN in " ".join(done.err.split())


def test_inspect_shows_task_and_reason(tmp_path: Path, optc: Optc) -> None:
    a = write_labels(tmp_path / "a").path
    assert "image-classification" in optc("inspect", a).out
    (engine,) = optc("inspect", a, "--json").json["engines"]
    assert engine["loads_here"] is False
    assert engine["reason"].startswith(UNKNOWN)


def test_what_reads_it_takes_gates_from_its_manifest(tmp_path: Path, optc: Optc) -> None:
    a, b = (write_labels(tmp_path / name).path for name in "ab")
    assert optc("verify", a).code == 0
    (gate,) = optc("diff", a, b, "--json").json["gates"]
    assert (gate["name"], gate["a"]) == ("top1_labels", 0.995)
    page = tmp_path / "page.html"
    assert optc("report", a, "-o", page).code == 0
    assert "images with the same likeliest label" in page.read_text("utf-8")
