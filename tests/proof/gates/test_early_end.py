"""A gate ends early where it cannot hold any more, and hardly ever where it would have held."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optc.proof.gates.divergence import BestTokens, RowScores
from optc.proof.gates.early_end import FALSE_END, GateTests, MeanTest, random_order

ROWS = 100


def scores(kl: np.ndarray, agree: float = 1.0, nll: float = 2.0) -> RowScores:
    """A window of which a share of rows agrees; the likeliest tokens are not looked at."""
    rows = len(kl)
    right = np.arange(rows) < round(agree * rows)
    best = BestTokens(*(np.zeros((rows, 2), kind) for kind in (np.int64, float, float)))
    return RowScores(kl, right, right, np.full(rows, nll), np.full(rows, nll), best)


def ended(test: MeanTest, figures: np.ndarray) -> int | None:
    """After how many windows the test gives up; None if it does not."""
    for count, figure in enumerate(figures, 1):
        test.add(float(figure))
        if test.hopeless:
            return count
    return None


def test_thirty_times_the_bound_is_certain_after_two_windows() -> None:
    test = MeanTest(0.0015, 45)
    assert ended(test, np.full(45, 0.045)) == 2
    assert test.certain


def test_a_little_too_much_ends_by_the_bets() -> None:
    test = MeanTest(0.0015, 200)
    count = ended(test, np.random.default_rng(0).uniform(0.002, 0.004, 200))
    assert count is not None
    assert count < 60
    assert not test.certain


def test_figures_within_the_bound_never_end_it() -> None:
    assert ended(MeanTest(0.5, 50), np.full(50, 0.5)) is None
    assert ended(MeanTest(0.0, 50), np.zeros(50)) is None


def test_of_gates_that_would_hold_no_more_ends_than_is_said() -> None:
    """At the bound exactly, and heavy-tailed, which is the hardest: far more than `FALSE_END`
    would be seen in so many orders."""
    rng = np.random.default_rng(5)
    figures = rng.pareto(1.5, 40)
    false = sum(
        ended(MeanTest(float(figures.mean()) * (1 + 1e-12), 40), rng.permutation(figures))
        is not None
        for _ in range(4000)
    )
    assert false <= max(3, 10 * FALSE_END * 4000)


@pytest.mark.parametrize("worst", [math.nan, math.inf])
def test_what_is_no_number_is_the_worst(worst: float) -> None:
    test = MeanTest(0.1, 9)
    test.add(worst)
    assert test.certain
    assert test.hopeless


def test_a_bound_below_zero_holds_for_nothing() -> None:
    assert MeanTest(-0.1, 9).hopeless


HIGH = np.full(ROWS, 0.4)


@pytest.mark.parametrize(
    ("name", "bound", "window"),
    [
        ("kl_mean", 0.01, scores(HIGH)),
        ("kl_p99", 0.3, scores(HIGH)),
        ("kl_max", 0.3, scores(HIGH)),
        ("top1_agreement", 0.98, scores(HIGH, agree=0.6)),
        ("top5_agreement", 0.98, scores(HIGH, agree=0.6)),
        ("perplexity", 1.1, scores(HIGH)),
        ("perplexity", 0.0, scores(HIGH)),
    ],
)
def test_every_gate_of_windows_ends(name: str, bound: float, window: RowScores) -> None:
    tests = GateTests({name: bound, "decode_speedup": 2.0}, 20, ROWS)
    found = []
    while not found:
        found = tests.add(window)
    (end,) = found
    assert (end.gate, end.of) == (name, 20)
    assert end.windows < 10
    assert str(end).startswith(f"ended early after {end.windows} of 20 windows: it ")


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        *[("kl_mean", 0.4), ("kl_p99", 0.4), ("kl_max", 0.4), ("top1_agreement", 0.6)],
        *[("top5_agreement", 0.6), ("perplexity", math.exp(2.0))],
    ],
)
def test_at_its_bound_no_gate_ends(name: str, bound: float) -> None:
    tests = GateTests({name: bound}, 20, ROWS)
    assert [tests.add(scores(HIGH, agree=0.6)) for _ in range(20)] == [[]] * 20


@pytest.mark.parametrize(("beyond", "ends"), [(20, False), (21, True)])
def test_the_percentile_ends_where_it_is_beyond_the_bound(beyond: int, ends: bool) -> None:
    """Of 20 windows of 100 rows, rank 0.99 * 1999 = 1979.01 lies between rows that are the 20th and
    21st from above."""
    kl = np.zeros((20, ROWS))
    kl[0, :beyond] = 1.0
    tests = GateTests({"kl_p99": 0.3}, 20, ROWS)
    found = [bool(tests.add(scores(one))) for one in kl]
    assert any(found) is ends
    assert (np.sort(kl.ravel())[1979] > 0.3) is np.bool_(ends)


def test_the_last_window_is_no_early_end_and_nothing_without_a_bound_ends() -> None:
    assert GateTests({"kl_mean": 0.01}, 1, ROWS).add(scores(HIGH)) == []
    assert GateTests({"kl_mean": None}, 9, ROWS).add(scores(HIGH)) == []
    assert GateTests({"perplexity_ratio": 0.1}, 9, ROWS).add(scores(HIGH)) == []


def test_the_order_is_drawn_once() -> None:
    order = random_order(45)
    assert sorted(order.tolist()) == list(range(45))
    assert order.tolist() != list(range(45))
    np.testing.assert_array_equal(order, random_order(45))
