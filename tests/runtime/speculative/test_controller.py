from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.speculative.controller import (
    MAX_DRAFTED,
    Acceptance,
    BreakEven,
    Fixed,
    StepCosts,
    best_count,
)


def brute_force(rate: float, share: float, sequences: int) -> float:
    gains = [sum(rate**i for i in range(1, k + 1)) - k * sequences * share for k in range(9)]
    return max(gains)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("sequences", [1, 16])
def test_the_count_is_the_best_one(rate: float, share: float, sequences: int) -> None:
    count = best_count(rate, share, sequences, 8)
    gain = sum(rate**i for i in range(1, count + 1)) - count * sequences * share
    assert gain == pytest.approx(brute_force(rate, share, sequences), abs=0.021)


def test_a_line_of_costs_is_learned() -> None:
    costs = StepCosts()
    assert costs.row_share(1) == 0.05
    for rows in np.random.default_rng(0).integers(1, 9, 200).tolist():
        costs.observe(rows, 1.0 + 0.25 * rows)
    assert costs.row_share(1) == pytest.approx(0.25 / 1.25, rel=0.05)
    assert costs.row_share(9) == pytest.approx(0.25 / 3.25, rel=0.05)


def test_noise_never_makes_rows_free_of_charge_or_endless() -> None:
    falling, steep = StepCosts(), StepCosts()
    for rows in [1, 9] * 50:
        falling.observe(rows, 10.0 - rows)
        steep.observe(rows, 1.0 if rows == 1 else 500.0)
    assert falling.row_share(1) == 0
    assert 0 < steep.row_share(1) <= 1
    assert 0 < steep.row_share(9) <= 1


def test_where_rows_are_nearly_free_good_drafts_grow_and_bad_ones_stop() -> None:
    controller = BreakEven()
    for rows in [1, 5, 9] * 30:
        controller.observe(rows, 1 + 0.01 * rows)
    good, bad = Acceptance(), Acceptance()
    for _ in range(60):
        good.observe(8, 8)
        bad.observe(8, 0)
    assert controller.counts([good], 1) == [MAX_DRAFTED]
    counts = [controller.counts([bad], 1)[0] for _ in range(128)]
    assert counts == ([0] * 63 + [1]) * 2, "one probe in 64 steps"


def test_a_full_batch_that_is_bound_by_arithmetic_does_not_draft() -> None:
    controller = BreakEven()
    for rows in [16, 20, 24] * 30:
        controller.observe(rows, float(rows))
    hopeful = Acceptance(9.0, 10.0)
    assert controller.counts([hopeful], 16) == [0]


def test_only_tested_drafts_count() -> None:
    acceptance = Acceptance(0.0, 0.0)
    acceptance.observe(8, 2)
    assert acceptance.rate == pytest.approx(2 / 3)
    acceptance = Acceptance(0.0, 0.0)
    acceptance.observe(4, 4)
    assert acceptance.rate == 1


def test_a_fixed_number_stays() -> None:
    controller = Fixed(3)
    controller.observe(1, 1.0)
    assert controller.counts([Acceptance(0.0, 1.0)] * 2, 99) == [3, 3]
