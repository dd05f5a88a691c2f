"""Choosing step by step what goes, on costs and sizes that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from optc.passes.prune.structured import choose as module
from optc.passes.prune.structured.choose import Step, choose

SIZES = {"a": 4, "b": 4, "c": 1, "d": 8}


def steps_of(
    costs: dict[str, float], most: int, pairs: dict[frozenset[str], float] | None = None
) -> list[Step[str]]:
    """Of items a to d; what items cost together is the sum, but for ``pairs``."""

    def cost(gone: Sequence[str], able: Sequence[str]) -> list[float]:
        return [
            sum(costs[item] for item in (*gone, one))
            + sum(more for pair, more in (pairs or {}).items() if pair <= {*gone, one})
            for one in able
        ]

    def counted(gone: Sequence[str]) -> Fraction:
        return Fraction(sum(size for item, size in SIZES.items() if item not in gone))

    return choose(lambda gone: [i for i in SIZES if i not in gone], cost, counted, Fraction(most))


def taken(steps: list[Step[str]]) -> list[str]:
    return [item for step in steps for item in step.taken]


def test_the_least_cost_for_what_is_saved_goes_first() -> None:
    assert taken(steps_of({"a": 1.0, "b": 0.9, "c": 0.5, "d": 3.0}, 9)) == ["b", "a"]


def test_what_is_saved_beyond_the_target_does_not_count() -> None:
    # d saves twice as much for a little more, but no more than a is wanted
    assert taken(steps_of({"a": 1.0, "b": 2.0, "c": 2.0, "d": 1.1}, 13)) == ["a"]
    assert taken(steps_of({"a": 1.0, "b": 2.0, "c": 2.0, "d": 1.1}, 9)) == ["d"]


def test_costs_are_seen_together_with_what_went_before() -> None:
    costs = {"a": 1.0, "b": 1.1, "c": 9.0, "d": 2.6}
    assert taken(steps_of(costs, 9)) == ["a", "b"]
    steps = steps_of(costs, 9, {frozenset("ab"): 5.0})
    assert taken(steps) == ["a", "d"]
    assert steps[1].candidates == ("b", "c", "d")
    assert steps[1].costs == (7.1, 10.0, 3.6)


def test_it_ends_where_nothing_is_left() -> None:
    assert sorted(taken(steps_of(dict.fromkeys("abcd", 1.0), -1))) == [*"abcd"]


def test_nothing_goes_where_the_target_is_met() -> None:
    assert steps_of(dict.fromkeys("abcd", 1.0), 17) == []


def test_of_many_items_several_go_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS", 1)
    steps = steps_of({"a": 1.0, "b": 0.9, "c": 5.0, "d": 0.1}, 1)
    assert [step.taken for step in steps] == [("d", "b"), ("a",)]
