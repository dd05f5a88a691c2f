"""Places in the order and the bound by numbers; `test_priorities` holds schedules to them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from optc.runtime.scheduling.policy import (
    AGING_STEPS,
    Rank,
    beside,
    order,
    place,
    rank,
    steps_when_first,
)


@dataclass(frozen=True)
class Ranked:
    id: int
    rank: Rank
    idle: bool = False


def test_a_priority_counts_as_an_earlier_arrival() -> None:
    assert rank(0, 70, leader=5) == Rank(due=70, leader=5)
    assert rank(2, 70, leader=5).due == 70 - 2 * AGING_STEPS
    assert rank(1, 10 + AGING_STEPS, 1) == rank(0, 10, 1)
    assert rank(-1, 0, 0).due == AGING_STEPS


def test_the_order_is_by_due_step_then_leader_then_id() -> None:
    late, early = Ranked(0, Rank(9, 0)), Ranked(7, Rank(8, 4))
    mates = [Ranked(5, Rank(8, 3)), Ranked(6, Rank(8, 3))]
    assert sorted([late, early, *reversed(mates)], key=place) == [*mates, early, late]


def test_each_further_one_counts_as_a_lower_priority() -> None:
    assert rank(0, 70, 5, further=3) == rank(-3, 70, 5)
    assert beside(rank(1, 70, 5), 2) == rank(1, 70, 5, further=2)
    assert beside(rank(1, 70, 5, further=2), -2) == rank(1, 70, 5)


def test_idle_ones_come_last() -> None:
    idle, busy = Ranked(1, Rank(8, 3), idle=True), Ranked(2, Rank(8, 3))
    other = Ranked(3, Rank(8, 4))
    assert sorted([other, idle, busy], key=order) == [busy, other, idle]
    assert sorted([other, idle, busy], key=place) == [idle, busy, other]


@pytest.mark.parametrize(
    ("tokens", "output", "budget", "chunk", "steps"),
    [
        (0, 3, 8, None, 3),
        (8, 3, 8, None, 5),
        (9, 3, 8, None, 6),
        (8, 0, 7, None, 2),  # the larger half of 7
        (9, 0, 8, 3, 3),
        (9, 0, 8, 2, 5),
        (9, 0, 8, 100, 3),
    ],
)
def test_the_first_gets_at_least_half_of_the_budget(
    tokens: int, output: int, budget: int, chunk: int | None, steps: int
) -> None:
    assert steps_when_first(tokens, output, budget, chunk) == steps
