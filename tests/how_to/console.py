"""Runs what a page shows, on an artifact of the toy engine at ``artifacts/model``.

A block that begins with ``# file: NAME`` is that file. In the other ``console`` blocks, lines that
begin with ``$`` are commands, and each line below is found in what the command prints; ``$ echo
$?`` shows the exit code of the one before. ``> FILE`` keeps what a command prints on stdout.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to import PAGES

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def run_page(name: str, optc: Optc, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the commands and the Python of a page in ``folder``; gives how many there were."""
    monkeypatch.chdir(folder)
    count = 0
    for kind, block in _BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
        first, _, rest = block.partition("\n")
        if first.startswith("# file: "):
            Path(first.removeprefix("# file: ")).write_text(rest, encoding="utf-8")
        elif kind == "console":
            count += _run(block, optc, monkeypatch)
        elif kind == "python":
            exec(compile("from __future__ import annotations\n" + block, name, "exec"), {})
            count += 1
    return count


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
