"""Ranges of values from their histograms."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.general.value_ranges import METHODS, ValueHistogram


def seen(values: np.ndarray) -> ValueHistogram:
    found = ValueHistogram()
    found.widen(values)
    found.add(values)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_zeros_alone_are_clipped_nowhere(method: str) -> None:
    """As of a channel that a ReLU ends, between values that other samples had."""
    found = ValueHistogram(-1.0, 3.0)
    found.add(np.zeros(1000))
    ends = METHODS[method](found)
    if method in ("min-max", "entropy"):
        assert (ends.low, ends.high) == (-1.0, 3.0)
    assert ends.low <= 0 <= ends.high


def test_where_nothing_was_counted_the_ends_stay() -> None:
    for method in ("min-max", "percentile", "entropy"):
        ends = METHODS[method](ValueHistogram(-1.0, 3.0))
        assert (ends.low, ends.high) == (-1.0, 3.0)


def test_percentiles_leave_out_one_in_ten_thousand() -> None:
    values = np.random.default_rng(0).normal(size=400_000)
    found = METHODS["percentile"](seen(values))
    low, high = np.quantile(values, [0.00005, 0.99995])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_the_least_square_is_that_of_all_that_are_tried() -> None:
    """One end after the other, in 255 steps, of values with a few far away."""
    values = np.concatenate([np.random.default_rng(0).normal(size=50_000), [40.0, -30.0]])

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        levels = np.clip(np.rint(values / step), np.rint(low / step), np.rint(high / step))
        return float(np.square(values - levels * step).sum())

    shares = np.linspace(1.0, 0.2, 81)
    high = min(shares * 40, key=lambda one: error(-30, one))
    low = min(shares * -30, key=lambda one: error(one, high))
    found = METHODS["mse"](seen(values))
    assert error(found.low, found.high) <= 1.02 * error(low, high) < error(-30, 40)


@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-1.0, 3.0), (0.0, 2.0), (-2.0, 0.0), (-1.0, 0.3)])
def test_the_bin_of_zero_is_the_one_that_zeros_are_counted_in(ends: tuple[float, float]) -> None:
    """Also where 0 is the edge between two bins."""
    found = ValueHistogram(*ends)
    found.add(np.zeros(7))
    assert found.counts is not None
    assert found.counts[found.zero] == 7


@pytest.mark.parametrize("zeros", [0, 10, 100_000])
def test_zeros_behind_a_relu_do_not_count_against_the_rest(zeros: int) -> None:
    values = np.abs(np.random.default_rng(0).laplace(size=20_000))
    plain = METHODS["entropy"](seen(values[values > 0.01]))
    found = METHODS["entropy"](seen(np.concatenate([values[values > 0.01], np.zeros(zeros)])))
    assert (found.low, found.high) == (plain.low, plain.high)
    assert found.low == 0
    assert 0 < found.high < values.max()
