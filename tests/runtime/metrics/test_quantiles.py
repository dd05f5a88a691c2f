"""The sketch against exact quantiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.metrics.quantiles import Quantiles

values = st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=1, max_size=200)


def exact(of: list[float], share: float) -> float:
    return sorted(of)[max(1, math.ceil(share * len(of))) - 1]


@given(values, st.floats(0, 1), st.sampled_from([0.005, 0.05]))
def test_quantiles_are_within_the_stated_error(of: list[float], share: float, error: float) -> None:
    sketch = Quantiles(error)
    sketch.extend(of)
    assert sketch.quantile(share) == pytest.approx(exact(of, share), rel=error * 1.0001, abs=0)
    assert sketch.mean == pytest.approx(sum(of) / len(of))


def test_a_copy_sees_nothing_more() -> None:
    sketch = Quantiles()
    sketch.add(2.0)
    copy = sketch.copy()
    sketch.add(4.0)
    assert (sketch.count, copy.count, copy.quantile(1)) == (2, 1, pytest.approx(2.0, rel=0.005))


BOUNDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9).map(sorted)


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e6), max_size=200), BOUNDS)
def test_a_histogram_counts_what_is_at_most_each_bound(
    of: list[float], bounds: list[float]
) -> None:
    sketch = Quantiles()
    sketch.extend(of)
    found = sketch.histogram(bounds)
    assert [bound for bound, _ in found] == bounds
    for bound, count in found:
        least, most = (sum(value <= bound * (1 + e) for value in of) for e in (-0.0051, 0.0051))
        assert least <= count <= most
    counts = [count for _, count in found]
    assert counts == sorted(counts)
    sketch.extend(of)
    assert [count for _, count in sketch.histogram(bounds)] == [2 * count for count in counts]


def test_memory_is_bounded_by_the_range_not_by_the_count() -> None:
    sketch = Quantiles()
    sketch.extend([10 ** (-8 + 16 * i / 20_000) for i in range(20_001)])
    assert len(sketch.buckets) <= 2764
    assert sketch.quantile(0.01) == 0
    assert sketch.quantile(1) == pytest.approx(1e6, rel=0.005)


def test_nothing_has_no_quantiles() -> None:
    assert Quantiles().quantile(0.5) is Quantiles().mean is None


def test_single_values_count_in_the_mean() -> None:
    sketch = Quantiles()
    sketch.add(2.0)
    sketch.add(4.0)
    assert (sketch.count, sketch.mean) == (2, 3.0)


def test_values_beyond_the_range_count_as_its_ends() -> None:
    sketch, largest = Quantiles(), Quantiles()
    sketch.extend([1e9, 0.9e-6])
    largest.add(1e6)
    assert sketch.quantile(1) == largest.quantile(1)
    assert sketch.quantile(0.5) == 0
    assert sketch.mean == pytest.approx(5e8), "the mean is exact"


@given(values)
def test_one_by_one_or_at_once(of: list[float]) -> None:
    one, other = Quantiles(), Quantiles()
    for value in of:
        one.add(value)
    other.extend(of)
    assert (one.count, one.zeros, one.buckets) == (other.count, other.zeros, other.buckets)
    assert one.total == pytest.approx(other.total)
