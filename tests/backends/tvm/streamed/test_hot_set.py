"""Which pieces stay in memory."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.streamed import hot_set
from optc.backends.tvm.streamed.hot_set import HALF_LIFE, HotSet


def of(*sizes: int, budget: int) -> HotSet:
    return HotSet(np.array(sizes, np.int64), budget)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may stay from its first use."""
    monkeypatch.setattr(hot_set, "HOT", 0.0)


def step(hot: HotSet, *pieces: int) -> tuple[list[int], list[int]]:
    hot.begin_step()
    return hot.use(np.array(pieces, np.int64))


@pytest.mark.usefixtures("at_once")
def test_what_is_read_stays_while_there_is_room() -> None:
    hot = of(10, 20, 30, 40, budget=60)
    assert step(hot, 1, 3) == ([1, 3], [])
    assert hot.bytes == 60
    assert step(hot, 0, 2) == ([], [])
    assert hot.kept.tolist() == [False, True, False, True]


@pytest.mark.usefixtures("at_once")
def test_a_piece_that_fits_stays_behind_one_that_does_not() -> None:
    hot = of(50, 10, budget=20)
    assert step(hot, 0, 1) == ([1], [])


@pytest.mark.usefixtures("at_once")
def test_frequent_pieces_take_the_place_of_rare_ones() -> None:
    hot = of(10, 10, 10, budget=20)
    step(hot, 0, 1)
    changes = [step(hot, 1, 2) for _ in range(6)]
    assert ([2], [0]) in changes
    assert [index for index, change in enumerate(changes) if change != ([], [])] == [3]
    assert hot.kept.tolist() == [False, True, True]
    assert hot.bytes == 20


@pytest.mark.usefixtures("at_once")
def test_pieces_that_are_equally_hot_do_not_change_places() -> None:
    hot = of(10, 10, 10, budget=20)
    for _ in range(200):
        step(hot, 0, 1, 2)
    assert hot.kept.tolist() == [True, True, False]


def test_pieces_of_each_step_come_before_experts() -> None:
    """Experts that were read first make room for what every step reads."""
    rng = np.random.default_rng(0)
    hot = of(*[10] * 40, budget=100)
    step(hot, *range(32))  # a prompt reads all experts
    for _ in range(100):
        step(hot, *sorted(rng.choice(32, 4, replace=False).tolist()), *range(32, 40))
    assert hot.kept[32:].all()
    assert not hot.kept[:32].any()  # an eighth of the steps uses each


def test_hot_experts_stay() -> None:
    """Expert 0 is chosen in two of three steps, the others in one of eight."""
    hot = of(*[10] * 9, budget=1000)
    for index in range(64):
        step(hot, 0, 1 + index % 8) if index % 3 else step(hot, 1 + index % 8)
    assert hot.kept.nonzero()[0].tolist() == [0]


def test_pieces_of_each_step_stay_after_some_steps() -> None:
    hot = of(10, budget=1000)
    assert [bool(step(hot, 0)[0]) for _ in range(16)].index(True) == 8


def test_what_is_hardly_used_any_more_goes() -> None:
    hot = of(10, 10, budget=20)
    for _ in range(50):
        step(hot, 0, 1)
    assert (hot.bytes, hot.cool()) == (20, [])
    while hot.kept[1]:
        step(hot, 0)
        gone = hot.cool()
    assert (gone, hot.bytes) == ([1], 10)
    assert 60 < hot.count_of(0) < 185


@pytest.mark.usefixtures("at_once")
def test_a_large_piece_takes_the_place_of_several() -> None:
    hot = of(10, 10, 10, 20, budget=30)
    step(hot, 0, 1, 2)
    for _ in range(3):
        step(hot, 2)
    for _ in range(8):
        stay, go = step(hot, 2, 3)
        if stay:
            break
    assert (stay, go) == ([3], [0, 1])
    assert hot.bytes == 30


@pytest.mark.usefixtures("at_once")
def test_no_piece_goes_for_one_that_does_not_fit_even_then() -> None:
    hot = of(10, 100, budget=50)
    step(hot, 0)
    for _ in range(20):
        assert step(hot, 1) == ([], [])
    assert hot.kept.tolist() == [True, False]


@pytest.mark.usefixtures("at_once")
def test_what_was_hot_long_ago_cools() -> None:
    hot = of(10, 10, budget=10)
    for _ in range(3 * HALF_LIFE):
        step(hot, 0)
    steps = 0
    while not hot.kept[1]:
        step(hot, 1)
        steps += 1
    assert HALF_LIFE / 2 < steps < 2 * HALF_LIFE


def test_counts_are_of_steps_older_ones_for_less() -> None:
    hot = of(1, 1, budget=0)
    step(hot, 0)
    for _ in range(HALF_LIFE):
        step(hot)
    step(hot, 1)
    assert hot.count_of(1) == pytest.approx(1)
    assert hot.count_of(0) == pytest.approx(0.5, rel=0.01)
    assert hot.bytes == 0


@pytest.mark.usefixtures("at_once")
def test_counts_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_set, "_LARGE", 1.1)
    hot, other = of(10, 10, 10, budget=20), of(10, 10, 10, budget=20)
    rng = np.random.default_rng(1)
    for _ in range(2000):
        used = sorted(rng.choice(3, 2, replace=False, p=[0.6, 0.3, 0.1]).tolist())
        monkeypatch.setattr(hot_set, "_LARGE", 1.1)
        changes = step(hot, *used)
        monkeypatch.setattr(hot_set, "_LARGE", 1e100)
        assert step(other, *used) == changes
    assert hot.count_of(0) == pytest.approx(other.count_of(0))


@pytest.mark.usefixtures("at_once")
def test_what_the_system_refuses_is_not_asked_for_again() -> None:
    hot = of(10, 10, 10, budget=30)
    step(hot, 0, 1)
    hot.refuse(1)
    assert hot.bytes == 10
    for _ in range(3):
        assert step(hot, 0, 1, 2) == ([], [])
    hot.refuse(2)  # which does not stay
    assert hot.bytes == 10
