"""Ranges, against searches over the values themselves."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.numerics.range_search import METHODS
from optc.proof.reference.histograms import MagnitudeHistogram


def histogram_of(values: np.ndarray) -> MagnitudeHistogram:
    histogram = MagnitudeHistogram()
    histogram.add(values)
    return histogram


def values_with_outliers(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(40_000)
    values[:8] = 30 * rng.uniform(0.8, 1, 8)
    return values.astype(np.float32)


def square_error(values: np.ndarray, clip: float) -> float:
    step = clip / 127
    return float(np.mean((np.clip(np.rint(values / step), -127, 127) * step - values) ** 2))


def test_the_largest_is_the_largest() -> None:
    values = values_with_outliers()
    assert METHODS["max"](histogram_of(values)) == np.abs(values).max()


def test_the_percentile_is_numpys_but_for_a_bin() -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    found = METHODS["percentile"](histogram_of(values))
    assert found == pytest.approx(np.quantile(np.abs(values), 0.9999), abs=8 / 2048)


@pytest.mark.parametrize("seed", range(3))
def test_no_range_has_less_squared_error_than_the_one_that_is_found(seed: int) -> None:
    values = values_with_outliers(seed)
    found = METHODS["mse"](histogram_of(values))
    least = min(square_error(values, clip) for clip in np.linspace(3, 30, 400))
    assert square_error(values, found) <= 1.02 * least
    assert square_error(values, found) < square_error(values, float(np.abs(values).max()))


def test_entropy_clips_outliers_and_keeps_the_body() -> None:
    found = METHODS["entropy"](histogram_of(values_with_outliers()))
    assert 2.5 < found < 15


def test_zeros_behind_a_relu_do_not_draw_the_range_to_nothing() -> None:
    values = np.maximum(values_with_outliers(), 0)
    many = np.concatenate([values, np.zeros(400_000, np.float32)])
    found = METHODS["entropy"](histogram_of(many))
    assert found == METHODS["entropy"](histogram_of(values))
    assert found > 2.5


@pytest.mark.parametrize("name", METHODS)
def test_without_outliers_next_to_nothing_is_clipped(name: str) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, 50_000).astype(np.float32)
    assert METHODS[name](histogram_of(values)) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", METHODS)
def test_zeros_have_no_range(name: str) -> None:
    assert METHODS[name](histogram_of(np.zeros(10))) == 0.0
