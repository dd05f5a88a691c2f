"""How whole commands are judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import whole
from tests.fuzz.form import Materials
from tests.fuzz.whole import COMMANDS, Command, run_whole

TRACEBACK = 'Traceback (most recent call last):\n  File "/x.py", line 3, in f\nValueError\n'


def script(code: int = 0, err: str = "", out: str = "", leave: str = "") -> str:
    """A program that stands for optc."""
    return (
        f"import sys, pathlib; sys.stdout.write({out!r}); sys.stderr.write({err!r});"
        f"[pathlib.Path('output', name).mkdir() for name in {leave.split()!r}]; sys.exit({code})"
    )


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Kind of the outcome and exit code of a command that does what a program does."""
    (tmp_path / "model").mkdir()

    def judge(program: str, name: str = "compile", arguments: tuple[str, ...] = ()) -> Any:
        monkeypatch.setattr(whole, "OPTC", (sys.executable, "-c", program))
        command = Command(name, "config", "model", arguments, 1)
        materials = Materials(tmp_path / "model", tmp_path)
        outcome, code = whole._run(command, {"a": b""}, materials, 120)
        return outcome.kind, code

    return judge


def test_refusals_and_successes_are_told_apart(judged: Any) -> None:
    assert judged(script(leave="a")) == ("accepted", "0")
    assert judged(script(2, err="· import\nerror: no such file\n")) == ("refused", "2")
    assert judged(script(4, err="error: a gate failed\n")) == ("refused", "4")
    error = '{"schema": "optc.error.v1", "error": {}}\n'
    assert judged(script(2, out=error), "run", ("--json",)) == ("refused", "2")


def test_what_must_not_be_is_found(judged: Any) -> None:
    assert judged(script(70, err=TRACEBACK + "error: internal\n")) == ("raw", "70")
    assert judged(script(70, err="error: internal\n")) == ("exit code", "70")
    assert judged(script(1)) == ("exit code", "1")
    assert judged("import os; os.kill(os.getpid(), 11)") == ("crash", "-11")
    assert judged(script(2)) == ("unclear", "2")
    assert judged(script(2, err="error: a\nerror: b\n")) == ("unclear", "2")
    assert judged(script(2, err="error: a\n", leave=".a.partial-3")) == ("leftovers", "2")
    assert judged(script(2, err="error: a\n", leave="a")) == ("leftovers", "2")
    assert judged(script(0)) == ("leftovers", "0")  # a compile that wrote nothing


def test_a_command_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(whole, "OPTC", (sys.executable, "-c", "while True: pass"))
    command = Command("run", "config", "artifact", (), 1)
    assert whole._run(command, {}, Materials(tmp_path, tmp_path), 0.3)[0].kind == "hang"


def test_commands_take_turns_by_their_shares() -> None:
    turns = [whole._command(index) for index in range(200)]
    assert sum(command.share for command in COMMANDS) == 100
    assert {command: turns.count(command) for command in COMMANDS} == {
        command: 2 * command.share for command in COMMANDS
    }


def test_a_command_must_take_an_undamaged_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(whole, "OPTC", (sys.executable, "-c", script(2, err="error: no\n")))
    (tmp_path / "model").mkdir()
    (tmp_path / "artifact").mkdir()
    materials = Materials(tmp_path / "model", tmp_path / "artifact")
    with pytest.raises(RuntimeError, match="fails on an undamaged input: 2"):
        run_whole(materials, 1, 0, 120)
