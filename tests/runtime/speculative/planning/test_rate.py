"""Live estimates against plain weighted sums in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.speculative.planning.rate import Line, Rate, RecentMedian, StepExtra


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


def slope_of(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Weighted least squares; a slope of 1 counts as 0.02 of the squared mean."""
    weights = 0.95 ** np.arange(len(x))[::-1]
    mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
    pull = 0.02 * mean_x**2
    covariance = np.average((x - mean_x) * (y - mean_y), weights=weights)
    variance = np.average((x - mean_x) ** 2, weights=weights)
    slope = (covariance + pull) / (variance + pull)
    return float(slope), float(mean_y - slope * mean_x)


def test_a_line_is_fitted_by_least_squares() -> None:
    line = Line()
    assert (line.at_0, line.slope) == (0.0, 1.0)
    x = np.array([1.0, 4.0, 2.0, 7.0, 3.0, 6.0, 2.0])
    y = 0.5 + 1.4 * x
    y[3] += 0.3
    for a, b in zip(x, y, strict=True):
        line.observe(a, b)
    assert (line.slope, line.at_0) == pytest.approx(slope_of(x, y))
    assert line.slope > 1.2
    assert line.at_0 > 0.5


def test_a_lines_slope_is_at_least_one_and_it_begins_at_zero_or_above() -> None:
    line = Line()
    for x, y in ((4.0, 3.0), (5.0, 3.0), (6.0, 3.0), (7.0, 3.0)):
        line.observe(x, y)
    assert (line.slope, line.at_0) == (1.0, 0.0)
    line = Line()
    for x, y in ((2.0, 3.0), (2.0, 3.0)):
        line.observe(x, y)
    assert (line.slope, line.at_0) == pytest.approx((1.0, 1.0)), "the pull decides alone"


def test_values_far_above_a_line_are_taken_for_twice_what_was_expected() -> None:
    line, expected = Line(), Line()
    line.observe(3.0, 300.0)
    expected.observe(3.0, 6.0)
    assert (line.slope, line.at_0) == (expected.slope, expected.at_0) == pytest.approx((1.0, 3.0))
    line.observe(3.0, 300.0)
    expected.observe(3.0, 12.0)
    assert (line.slope, line.at_0) == (expected.slope, expected.at_0)
    assert line.at_0 > 5


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


def test_guesses_are_the_first_values() -> None:
    median = RecentMedian((2.0, 7.0))
    assert median.value == 2.0
    assert not median.known
    median.observe(5.0)
    assert median.known
    assert median.value == 5.0


def test_what_a_step_takes_is_told_from_what_its_drafts_take() -> None:
    extra = StepExtra()
    for drafts in (1, 4, 2, 6, 3, 5, 1):
        extra.observe(drafts, 7.0 + 0.5 * drafts)
    assert extra.slope == pytest.approx(0.5)
    for drafts in (2, 4, 3, 5, 2, 6):
        extra.observe(drafts, 7.0 + 0.5 * drafts)
    assert extra.fixed == pytest.approx(7.0)
    extra.observe(9, 500.0)
    assert (extra.fixed, extra.slope) == pytest.approx((7.0, 0.5)), "one that is far off"


def test_equally_many_drafts_say_nothing_of_one() -> None:
    extra = StepExtra()
    assert (extra.fixed, extra.slope) == (0.0, 0.0)
    for _ in range(9):
        extra.observe(3, 6.0)
    assert (extra.fixed, extra.slope) == (6.0, 0.0)


def test_a_third_of_the_steps_held_up_moves_no_line() -> None:
    extra = StepExtra()
    for drafts, late in zip((2, 3, 4, 3, 2, 4, 3, 4, 3), (0, 0, 9, 0, 9, 0, 0, 9, 0), strict=True):
        extra.observe(drafts, 1.0 + 0.25 * drafts + late)
    assert 0 <= extra.slope < 0.5
    assert 0 < extra.fixed < 2.5
