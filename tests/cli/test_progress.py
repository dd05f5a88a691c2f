"""Progress on stderr."""

from __future__ import annotations

import io
import sys

import pytest

from optc.cli.progress import _duration, _Lines, progress_on_stderr


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


def test_a_long_stage_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = _Lines(lambda: now[0])
    for seconds, done in ((0, 100), (9, 110), (11, 120), (12, 130), (31, 150)):
        now[0] = seconds
        lines("answers", done, 200)
    now[0] = 100
    lines("other", 0, 0)
    now[0] = 200
    lines("other", 1, 0)
    assert capsys.readouterr().err.splitlines() == [
        "· answers",
        "· answers: 120/200, about 44 s left",  # 20 in 11 s, 80 to go
        "· answers: 150/200, about 31 s left",
        "· other",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
