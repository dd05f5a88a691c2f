"""Lines of a thread: nobody who hands one in waits for a reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from optc.serve.lines import LineWriter

PIPE = 1 << 16


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_lines_come_in_their_order(pipe: tuple[int, int]) -> None:
    lines = LineWriter(pipe[1], "the pipe")
    for number in range(100):
        lines(f"line {number}")
    lines(lambda: None)
    lines(lambda: "last \udc80")
    assert lines.close()
    text = os.read(pipe[0], PIPE).decode()
    assert text.splitlines() == [*(f"line {n}" for n in range(100)), r"last \udc80"]


def test_a_pipe_that_nobody_reads_loses_lines_and_holds_nobody_up(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    os.set_blocking(pipe[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe[1], b"x")
    os.set_blocking(pipe[1], True)
    lines = LineWriter(pipe[1], "the pipe", most=10)
    for _ in range(200):
        lines("a line")
    assert lines.lost in (189, 190), "ten wait, and one may be with the writer"
    assert not lines.close(0.05)
    assert caplog.text.count("the pipe takes lines too slowly") == 1
    assert "the pipe did not take" in caplog.text
    while lines._thread.is_alive():  # so that no thread writes into what another test opens
        os.read(pipe[0], PIPE)


def test_a_reader_that_leaves_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    lines = LineWriter(writing, "the pipe")
    lines("a")
    lines._thread.join()
    lines("b")
    assert lines.close()
    os.close(writing)
    assert caplog.messages == ["the pipe takes no lines any more: Broken pipe"]
