"""The streamer: what is asked for before a kernel runs, and what stays behind it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from optc.backends.tvm.streamed import hot_set
from optc.backends.tvm.streamed.pieces import Pieces
from optc.backends.tvm.streamed.streamer import Streamer

SIZE = 10


class File:
    """Notes what is done with pieces, which are ten bytes each; keeps those that it may."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.full = False

    def read_ahead(self, start: int, size: int) -> None:
        self._note("read", start, size)

    def keep(self, start: int, size: int) -> None:
        self._note("keep", start, size)
        if self.full:
            raise OSError(12, "Cannot allocate memory")

    def let_go(self, start: int, size: int) -> None:
        self._note("drop", start, size)

    def _note(self, what: str, start: int, size: int) -> None:
        assert size == SIZE
        self.done.append((what, start // SIZE))


#: Weights 0 to 3 have a piece each; 4 has four experts, 5 too, with pieces 4 to 7 and 8 to 11.
PIECES = Pieces(
    np.zeros(12, np.int64),
    np.arange(12) * SIZE,
    np.full(12, SIZE),
    (*(np.array([i, i + 1]) for i in range(4)), np.arange(4, 9), np.arange(8, 13)),
)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setattr(hot_set, "HOT", 0.0)  # a piece may stay from its first use
    return File()


def streamers(file: File, budget: int, window: int) -> Iterator[Streamer]:
    streamer = Streamer(PIECES, [file], budget, window)  # type: ignore[list-item]
    yield streamer
    streamer.close()


def run(streamer: Streamer, file: File, *calls: tuple[int, list[int] | None]) -> set[object]:
    """What one step does."""
    file.done.clear()
    streamer.begin_step()
    for weight, chosen in calls:
        streamer.use((weight,), None if chosen is None else np.array(chosen))
        streamer.wait()
    return set(file.done)


def test_only_chosen_experts_are_read(file: File) -> None:
    for streamer in streamers(file, budget=0, window=100):
        assert run(streamer, file, (0, None), (4, [1, 3])) == {("read", i) for i in (0, 5, 7)}
        assert file.done[0] == ("read", 0)


def test_experts_of_the_same_mixture_and_the_next_layer_are_read_ahead(file: File) -> None:
    layer: list[tuple[int, list[int] | None]] = [(0, None), (4, [2]), (5, [2]), (1, None)]
    for streamer in streamers(file, budget=0, window=100):
        run(streamer, file, *layer)
        file.done.clear()
        streamer.begin_step()
        streamer.use((0,), None)
        streamer.wait()
        assert file.done == [("read", 0)]
        streamer.use((4,), np.array([3]))
        streamer.wait()
        # its own first, then down of the same expert, the next layer's, and the next step's
        assert file.done[1:] == [("read", i) for i in (7, 11, 1, 0)]
        streamer.use((5,), np.array([3]))
        streamer.use((1,), None)
        streamer.wait()
        assert len(file.done) == 5


def test_what_stays_is_neither_read_nor_kept_again(file: File) -> None:
    calls: list[tuple[int, list[int] | None]] = [(0, None), (1, None)]
    for streamer in streamers(file, budget=2 * SIZE, window=100):
        first = run(streamer, file, *calls)
        assert first == {(what, i) for what in ("read", "keep") for i in (0, 1)}
        assert run(streamer, file, *calls) == set()
        assert streamer.hot.bytes == 2 * SIZE


def test_hot_experts_take_the_place_of_cold_ones(file: File) -> None:
    for streamer in streamers(file, budget=SIZE, window=100):
        assert ("keep", 4) in run(streamer, file, (4, [0]))
        done: set[object] = set()
        while ("keep", 6) not in done:
            done = run(streamer, file, (4, [2]))
        assert done == {("read", 6), ("drop", 4), ("keep", 6)}
        assert file.done.index(("drop", 4)) < file.done.index(("keep", 6))


def test_no_more_than_a_window_is_asked_for(file: File) -> None:
    for streamer in streamers(file, budget=0, window=2 * SIZE):
        assert run(streamer, file, (4, [0, 1, 2, 3])) == {("read", 4), ("read", 5)}


def test_memory_that_runs_out_ends_the_keeping(
    file: File, caplog: pytest.LogCaptureFixture
) -> None:
    for streamer in streamers(file, budget=4 * SIZE, window=100):
        run(streamer, file, (0, None))
        file.full = True
        run(streamer, file, (0, None), (1, None))
        file.full = False
        with caplog.at_level("WARNING"):
            done = run(streamer, file, (0, None), (1, None), (2, None))
        assert "the memory does not suffice for more than 10 B of weights" in caplog.text
        assert not {what for what, _ in file.done} - {"read"}
        assert ("read", 1) in done
        assert streamer.hot.kept.nonzero()[0].tolist() == [0]


def test_what_is_no_longer_hot_goes(file: File) -> None:
    for streamer in streamers(file, budget=10 * SIZE, window=100):
        run(streamer, file, (0, None))
        gone: set[object] = set()
        for _ in range(64):
            gone |= run(streamer, file, (1, None))
        assert ("drop", 0) in gone
        assert streamer.hot.kept.nonzero()[0].tolist() == [1]
