"""Speed over another, by a clock that the test turns."""

from __future__ import annotations

import time

import pytest

from optc.proof.gates.in_turns import speedup


class Clock:
    """Each run of either takes the next of its seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ours: list[float], others: list[float]):
        self.now, self.runs = 0.0, ""
        self._ours, self._others = ours, others
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def ours(self) -> None:
        self.now += self._ours.pop(0)
        self.runs += "o"

    def baseline(self) -> None:
        self.now += self._others.pop(0)
        self.runs += "b"


def test_medians_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [2.0, 1.0, 50.0], [6.0, 90.0, 3.0])
    assert speedup(clock.ours, clock.baseline, 3) == 3
    assert clock.runs == "obobob"


@pytest.mark.parametrize(("most", "turns"), [(0.0, 1), (2.9, 1), (3.0, 2), (5.9, 2), (60.0, 4)])
def test_no_turn_begins_when_the_time_is_up(
    most: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, [1.0] * 4, [2.0] * 4)
    assert speedup(clock.ours, clock.baseline, 4, most) == 2
    assert clock.runs == "ob" * turns
