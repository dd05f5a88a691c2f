"""Progress on stderr."""

from __future__ import annotations

import io
import sys

import pytest

from optc.cli.progress import progress_on_stderr


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
