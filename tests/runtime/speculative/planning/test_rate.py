"""Live estimates against plain weighted sums in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.speculative.planning.rate import MedianLine, Rate, RecentMedian


def test_a_rate_is_a_mean_in_which_older_drafts_count_less() -> None:
    rate = Rate(0.5, 4.0, 0.1)
    assert rate.value == 0.5
    held = [True, True, False, True]
    for each in held:
        rate.observe(each)
    weights = 0.9 ** np.arange(len(held))[::-1]
    guess = 4.0 * 0.9 ** len(held)
    want = (0.5 * guess + (weights * held).sum()) / (guess + weights.sum())
    assert rate.value == pytest.approx(want)


def test_a_rate_forgets_its_guess() -> None:
    rate = Rate(0.9, 4.0, 0.1)
    for _ in range(200):
        rate.observe(False)
    assert rate.value == pytest.approx(0, abs=1e-6)


def test_the_median_of_the_latest_nine() -> None:
    median = RecentMedian()
    assert median.value == 1.0
    known = []
    for value in (5.0, 3.0, 4.0):
        median.observe(value)
        known.append((median.known, median.value))
    assert known == [(False, 5.0), (False, 5.0), (True, 4.0)]
    for value in (9.0, 9.0, 9.0, 9.0, 1.0, 1.0):
        median.observe(value)
    assert median.value == 5.0, "1 1 3 4 5 9 9 9 9"
    median.observe(1.0)
    assert median.value == 4.0, "the 5 has gone"


def test_a_line_is_found_whatever_a_point_far_off_says() -> None:
    line = MedianLine(1.0)
    assert (line.at_0, line.slope) == (0.0, 1.0)
    for x in (1, 4, 2, 6, 3, 5, 1, 2, 4, 3, 5, 2, 6):
        line.observe(x, 7.0 + 0.5 * x)
    assert (line.at_0, line.slope) == pytest.approx((7.0, 0.5))
    line.observe(9, 500.0)
    assert (line.at_0, line.slope) == pytest.approx((7.0, 0.5))


def test_a_line_is_that_of_all_pairs_of_the_latest_points_and_four_guesses() -> None:
    rng, line = np.random.default_rng(0), MedianLine(1.0)
    x, y = rng.integers(1, 7, 30).astype(float), rng.standard_normal(30)
    for count, (at, value) in enumerate(zip(x, y, strict=True), 1):
        line.observe(at, value)
        if count < 17:  # then all slopes to points that have gone have gone too
            continue
        kept = range(count - 9, count)
        slopes = [
            (y[j] - y[i]) / (x[j] - x[i])
            for j in kept
            for i in range(max(0, j - 9), j)
            if x[i] != x[j]
        ]
        values = sorted([1.0] * 4 + slopes)
        slope = values[len(values) // 2]
        assert line.slope == pytest.approx(slope)
        assert line.at_0 == pytest.approx(
            np.median(y[count - 9 : count] - slope * x[count - 9 : count])
        )


def test_a_single_value_of_x_says_nothing_of_the_slope() -> None:
    line = MedianLine(0.5)
    for _ in range(9):
        line.observe(3, 6.0)
    assert (line.at_0, line.slope) == (4.5, 0.5)


def test_three_points_are_not_believed_against_the_guesses() -> None:
    line = MedianLine(0.0)
    for _ in range(4):
        assert line.at_0 == 0.0
        line.observe(2, 8.0)
    assert line.at_0 == 8.0


def test_a_third_of_the_steps_held_up_moves_no_line() -> None:
    line = MedianLine(0.0)
    for drafts, late in zip((2, 3, 4, 3, 2, 4, 3, 4, 3), (0, 0, 9, 0, 9, 0, 0, 9, 0), strict=True):
        line.observe(drafts, 1.0 + 0.25 * drafts + late)
    assert 0 <= line.slope < 0.5
    assert 0 < line.at_0 < 2.5
