"""Scales keep order and stay within their ends, whatever the values."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.artifact.pages.charts.scale import Scale, linear, logarithmic

FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(FINITE, FINITE, st.lists(FINITE, max_size=5))
def test_linear(one: float, other: float, values: list[float]) -> None:
    check(linear(min(one, other), max(one, other), 300, 20), values)


@given(POSITIVE, POSITIVE, st.lists(POSITIVE, max_size=5))
def test_logarithmic(one: float, other: float, values: list[float]) -> None:
    check(logarithmic(min(one, other), max(one, other), 20, 300), values)


def check(scale: Scale, values: list[float]) -> None:
    low, high = sorted((scale.start, scale.end))
    ordered = sorted([scale.low, *values, scale.high])
    places = [scale(value) for value in ordered]
    assert all(math.isfinite(place) and low - 1e-6 <= place <= high + 1e-6 for place in places)
    rising = scale.end > scale.start
    assert all((b - a) * (1 if rising else -1) >= -1e-6 for a, b in pairwise(places))
    ticks = scale.ticks()
    assert len(ticks) <= 30
    assert ticks == sorted(ticks)


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (linear(0, 10, 0, 1), [0, 2, 4, 6, 8, 10]),
        (linear(0, 12, 0, 1), [0, 5, 10]),
        (linear(0.13, 0.52, 0, 1), [0.2, 0.3, 0.4, 0.5]),
        (linear(-1, 1, 0, 1), [-1, -0.5, 0, 0.5, 1]),
        (logarithmic(3, 40, 0, 1), [5, 10, 20]),
        (logarithmic(1e-6, 1, 0, 1), [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1]),
    ],
)
def test_ticks_are_round(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)


def test_places() -> None:
    assert linear(0, 4, 100, 0)(1) == 75
    assert logarithmic(1, 100, 0, 50)(10) == pytest.approx(25)
    assert linear(5, 5, 0, 100)(5) == pytest.approx(50)
