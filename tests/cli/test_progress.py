"""Progress on stderr."""

from __future__ import annotations

import io
import sys
from threading import Event
from threading import enumerate as enumerate_threads

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from optc.cli.progress import (
    _duration,
    _left_column,
    _Lines,
    _Live,
    _ticking,
    progress_on_stderr,
)


def tell_stages() -> None:
    with progress_on_stderr() as progress:
        progress("import", 0, 0)
        progress("gates", 1, 10)
        progress("gates", 10, 10)
        progress("import", 0, 0)


def test_a_file_gets_one_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    tell_stages()
    assert capsys.readouterr() == ("", "· import\n· gates\n· import\n")


def test_a_terminal_gets_a_bar_a_stage_and_stdout_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    tell_stages()
    written = sys.stderr.getvalue()  # type: ignore[attr-defined]
    last = written.rpartition("\x1b[?25h")[0].splitlines()[-3:]  # the frame that stays
    stages = ["import", "gates", "import"]
    assert [stage in line for stage, line in zip(stages, last, strict=True)] == [True] * 3
    assert capsys.readouterr().out == ""


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_stage_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = _Lines(clock)
    for clock.now, done in ((0, 100), (9, 110), (19, 120), (29, 130), (39, 140), (49, 150)):
        lines("answers", done, 200)
        lines.tick()
    for clock.now in (68.9, 69, 100, 500):
        lines.tick()
    clock.now = 600
    lines("answers", 200, 200)
    lines.tick()
    assert capsys.readouterr().err.splitlines() == [
        "· answers",
        "· answers: 140/200, 39 s so far, about 60 s left",  # 10 in 10 s since the first ones
        "· answers: 150/200, 69 s so far, about 30 s left",  # said without being told
        "· answers: 150/200, 2 min so far",  # it should have ended by now
        "· answers: 150/200, 8 min so far",
    ]


def test_a_stage_of_unknown_length_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    lines = _Lines(clock)
    lines.tick()
    lines("build", 0, 0)
    for clock.now in (10, 29, 30, 45, 60):
        lines.tick()
    assert capsys.readouterr().err.splitlines() == [
        "· build",
        "· build: 30 s so far",
        "· build: 60 s so far",
    ]


def test_the_first_answers_are_no_pace(capsys: pytest.CaptureFixture[str]) -> None:
    """16 at once, which take 40 s, the first ones 100 s: nothing is said before the second ones."""
    clock = Clock()
    lines = _Lines(clock)
    lines("answers", 0, 160)
    for wave, clock.now in enumerate((100.0, 140.0, 180.0)):
        for one in range(16):
            lines("answers", 16 * wave + one + 1, 160)
            clock.now += 0.01
    assert capsys.readouterr().err.splitlines() == [
        "· answers",
        "· answers: 1/160, 2 min so far",
        "· answers: 17/160, 2 min so far, about 6 min left",  # 143 in waves of 40 s
        "· answers: 33/160, 3 min so far, about 5 min left",
    ]


def test_ticks_come_while_the_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.cli.progress._LOOK_S", 0.001)
    ticked = Event()
    with _ticking(ticked.set):
        assert ticked.wait(60)
    ticked.clear()
    assert "progress" not in {thread.name for thread in enumerate_threads()}


def test_a_terminal_counts_down() -> None:
    clock = Clock()
    column = _left_column(clock)
    with Bars(column, console=Console(file=io.StringIO())) as bars:
        live = _Live(bars, clock)
        shown = []
        for clock.now, done in ((0, 0), (50, 1), (60, 2), (70, 3)):
            live("gates", done, 10)
            shown.append(str(column.render(bars.tasks[0])))
        clock.now = 75
        shown.append(str(column.render(bars.tasks[0])))
        live("next", 0, 0)
        shown.append(str(column.render(bars.tasks[0])))
    assert shown == ["", "", "80 s left", "70 s left", "65 s left", ""]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
