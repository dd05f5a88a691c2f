"""The choice within a size: against every other one, and against the bound on what is possible."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.passes.numerics import knapsack
from optc.passes.numerics.knapsack import Choice, choose, least_size

choices = st.builds(Choice, st.integers(0, 30), st.floats(0, 100))
items = st.lists(st.lists(choices, min_size=1, max_size=4), min_size=1, max_size=5)


def totals(given: list[list[Choice]], indices: list[int]) -> tuple[int, float]:
    """Size and loss of a set of choices."""
    chosen = [one[i] for one, i in zip(given, indices, strict=True)]
    return sum(one.size for one in chosen), sum(one.loss for one in chosen)


@given(items, st.integers(0, 60))
def test_nothing_within_the_size_loses_less(given: list[list[Choice]], room: int) -> None:
    most = least_size(given) + room
    size, loss = totals(given, choose(given, most))
    every = [totals(given, list(p)) for p in product(*(range(len(one)) for one in given))]
    best = min(lost for large, lost in every if large <= most)
    assert size <= most
    assert loss == pytest.approx(best, rel=1e-12, abs=1e-12)


def test_what_is_not_on_the_hull_is_found() -> None:
    """The middle choice lies above the line between its neighbours, but the largest has no room."""
    item = [Choice(0, 10.0), Choice(4, 7.0), Choice(6, 0.0)]
    assert choose([item], 5) == [1]
    assert choose([item], 6) == [2]


def test_too_small_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="5 at least, but 4 are allowed"):
        choose([[Choice(2, 1.0), Choice(9, 0.0)], [Choice(3, 1.0)]], 4)


def test_the_first_upgrade_without_room_is_the_price_of_size() -> None:
    two = [[Choice(0, 10.0), Choice(2, 4.0)], [Choice(0, 3.0), Choice(3, 0.0)]]
    assert knapsack._by_upgrades(two, 5) == ([1, 1], 0.0)
    assert knapsack._by_upgrades(two, 4) == ([1, 0], 1.0)
    assert knapsack._by_upgrades(two, 1) == ([0, 0], 3.0)


def test_a_model_of_many_tensors_is_chosen_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that fall by about four a bit, as those of weights; fewer states are no worse than
    single upgrades."""
    random = np.random.default_rng(0)
    model = [
        [
            Choice(
                int(weights * (bits + 0.5)), float(scale * 4.0**-bits * random.uniform(0.8, 1.2))
            )
            for bits in (2, 3, 4, 6, 8)
        ]
        for weights, scale in zip(
            random.integers(1, 9, 160) << 18, random.lognormal(0, 1, 160), strict=True
        )
    ]
    most = int(3.7 * sum(one[0].size / 2.5 for one in model))
    size, loss = totals(model, choose(model, most))
    assert size <= most
    upgrades, price = knapsack._by_upgrades(model, most)
    relaxed = sum(min(c.loss + price * c.size for c in one) for one in model) - price * most
    assert relaxed <= loss <= totals(model, upgrades)[1]
    monkeypatch.setattr(knapsack, "MOST_STATES", 3)
    few = totals(model, choose(model, most))
    assert few[0] <= most
    assert loss <= few[1] <= totals(model, upgrades)[1]
