"""docs/tutorial: the commands of each page run in order, and print what the page shows.

A block whose first line is ``# file: NAME`` is that file. In a ``console`` block, lines that begin
with ``$`` are commands; each line below is found in what the command prints. Those of optc and
scripts run in this process, where what they import is there already.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Optc, optc

__all__ = ["optc"]

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tutorial").glob("*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
#: Its model is had elsewhere: `tests/compiling/speech/test_tutorial.py` runs it.
_SPEECH = "05-write-down-speech"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != _SPEECH], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path, tmp_path: Path, optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "160")
    _link_examples(tmp_path / "examples")
    commands = 0
    for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        first, _, rest = block.partition("\n")
        if first.startswith("# file: "):
            (tmp_path / first.removeprefix("# file: ")).write_text(rest, encoding="utf-8")
        elif kind == "console":
            commands += _run(block, optc)
    assert commands


def _link_examples(folder: Path) -> None:
    """The examples. The smaller model has the larger one's name, too: it has the same tokenizer and
    a tenth of the weights to calibrate. `tests/end_to_end/test_main_job.py` compiles the larger."""
    (folder / "models").mkdir(parents=True)
    for path in (ROOT / "examples").iterdir():
        if path.name != "models":
            (folder / path.name).symlink_to(path)
    for name in ("pycode", "pycode-draft"):
        (folder / "models" / name).symlink_to(ROOT / "examples/models/pycode-draft")


def test_each_page_leads_to_the_next() -> None:
    assert len(PAGES) == 7
    for page, following in pairwise(PAGES):
        assert f"]({following.name})" in page.read_text(encoding="utf-8")


def test_links_lead_to_files() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def _run(block: str, optc: Optc) -> int:
    """Run the commands of a block and check their output; gives how many there were."""
    code = 0
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    for part in parts:
        command, *shown = part.rstrip("\n").split("\n")
        if command == "echo $?":
            assert [str(code)] == shown
            continue
        code, printed = _outcome(command, optc)
        assert [text for text in shown if text not in printed] == [], f"{command}\n{printed}"
    return len(parts)


def _outcome(command: str, optc: Optc) -> tuple[int, str]:
    """Exit code of a command, and what it prints."""
    words = shlex.split(command)
    if words[0] == "optc":
        words, kept = (words[:-2], words[-1]) if words[-2] == ">" else (words, None)
        done = optc(*words[1:])
        if kept is not None:
            Path(kept).write_text(done.out, encoding="utf-8")
        return done.code, done.err if kept is not None else done.out + done.err
    if words[0] == "python" and words[1:] and words[1].endswith(".py"):
        return _script(words[1])
    program, _, arguments = command.partition(" ")
    line = f"{sys.executable if program == 'python' else program} {arguments}"
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def _script(name: str) -> tuple[int, str]:
    """Exit code of a script that ends by itself, and what it prints; it changes no random numbers
    of PyTorch for others."""
    printed = StringIO()
    with (
        redirect_stdout(printed),
        redirect_stderr(printed),
        warnings.catch_warnings(),
        torch.random.fork_rng([]),
    ):
        warnings.simplefilter("default")
        runpy.run_path(name, run_name="__main__")
    return 0, printed.getvalue()
