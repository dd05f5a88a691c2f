"""Runs what a page shows, on an artifact of the toy engine at ``artifacts/model``.

A block that begins with ``# file: NAME`` is that file. In the other ``console`` blocks, lines that
begin with ``$`` are commands, and each line below is found in what the command prints; ``$ echo
$?`` shows the exit code of the one before. ``> FILE`` keeps what a command prints on stdout.
``sh`` blocks, where a test says which programs they call, hold commands alone, each of which ends
well; of other programs than optc the test says how they are run.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to import PAGES

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


#: Runs a program with the words of a command line.
Program = Callable[[list[str]], object]


def run_page(
    name: str,
    optc: Optc,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    programs: Mapping[str, Program] | None = None,
) -> int:
    """Run the commands and the Python of a page in ``folder``; gives how many there were.

    ``programs`` run what ``sh`` blocks call, by name; without them these blocks are not run.
    """
    monkeypatch.chdir(folder)
    count = 0
    for kind, block in _BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
        first, _, rest = block.partition("\n")
        if first.startswith("# file: "):
            Path(first.removeprefix("# file: ")).write_text(rest, encoding="utf-8")
        elif kind == "console":
            count += _run(block, optc, monkeypatch)
        elif kind == "sh" and programs is not None:
            count += _run_shell(block, {"optc": _ends_well(optc), **programs})
        elif kind == "python":
            exec(compile("from __future__ import annotations\n" + block, name, "exec"), {})
            count += 1
    return count


def installed(words: list[str]) -> None:
    """Run a program that is installed, or came with a package; skips the test where it is not."""
    found = shutil.which(words[0]) or shutil.which(words[0], path=Path(sys.executable).parent)
    if found is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([found, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


def _ends_well(optc: Optc) -> Program:
    def run(words: list[str]) -> None:
        done = optc(*words[1:])
        assert done.code == 0, f"{words}\n{done.out}{done.err}"

    return run


def _run_shell(block: str, programs: Mapping[str, Program]) -> int:
    lines = block.replace("\\\n", " ").splitlines()
    commands = [words for line in lines if (words := shlex.split(line, comments=True))]
    for words in commands:
        programs[words[0]](words)
    return len(commands)


def _run(block: str, optc: Optc, monkeypatch: pytest.MonkeyPatch) -> int:
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    code = 0
    for part in parts:
        command, *shown = part.rstrip("\n").split("\n")
        if command == "echo $?":
            assert [str(code)] == shown
            continue
        words = shlex.split(command)
        with monkeypatch.context() as patch:
            while "=" in words[0]:
                patch.setenv(*words.pop(0).split("=", 1))
            if "<" in words:
                *words, _, source = words
                patch.setattr("sys.stdin", io.StringIO(Path(source).read_text("utf-8")))
            target = words[words.index(">") + 1] if ">" in words else None
            words = words[: words.index(">")] if ">" in words else words
            assert words[0] == "optc", command
            outcome = optc(*words[1:])
        if target is not None:
            Path(target).write_text(outcome.out, encoding="utf-8")
        code, printed = outcome.code, outcome.out + outcome.err
        assert [text for text in shown if text not in printed] == [], f"{command}\n{printed}"
    return len(parts)
