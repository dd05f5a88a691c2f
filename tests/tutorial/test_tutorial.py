"""docs/tutorial: the commands of each page run in order, and print what the page shows.

A block whose first line is ``# file: NAME`` is that file. In a ``console`` block, lines that begin
with ``$`` are commands; each line below is found in what the command prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tutorial").glob("*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
#: The commands that pages name, by this interpreter and this tree.
_PROGRAMS = {"optc": f"{sys.executable} -m optc", "python": sys.executable}


#: Its model is had elsewhere: `tests/compiling/speech/test_tutorial.py` runs it.
_SPEECH = "05-write-down-speech"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != _SPEECH], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = 0
    for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        first, _, rest = block.partition("\n")
        if first.startswith("# file: "):
            (tmp_path / first.removeprefix("# file: ")).write_text(rest, encoding="utf-8")
        elif kind == "console":
            commands += _run(block, tmp_path)
    assert commands


def test_each_page_leads_to_the_next() -> None:
    assert len(PAGES) == 7
    for page, following in pairwise(PAGES):
        assert f"]({following.name})" in page.read_text(encoding="utf-8")


def test_links_lead_to_files() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def _run(block: str, folder: Path) -> int:
    """Run the commands of a block and check their output; gives how many there were."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    code = 0
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    for part in parts:
        command, *shown = part.rstrip("\n").split("\n")
        if command == "echo $?":
            assert [str(code)] == shown
            continue
        program, _, arguments = command.partition(" ")
        line = f"{_PROGRAMS.get(program, program)} {arguments}"
        done = subprocess.run(
            line,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        code, printed = done.returncode, done.stdout + done.stderr
        assert [text for text in shown if text not in printed] == [], f"{command}\n{printed}"
    return len(parts)
