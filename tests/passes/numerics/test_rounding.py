"""Sums in the order that is written down, and scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.numerics.rounding import (
    aligned_empty,
    group_ranges,
    sixteens,
    squared_error,
    steps,
    sum_of_ordered_squares,
    sum_of_squares,
    summed_order,
)
from optc.passes.numerics.scheme import Scheme
from tests.support.ir_text import f32


@pytest.mark.parametrize("size", [16, 32, 64, 128])
@pytest.mark.parametrize("width", [1, 257, 9000])
def test_one_sum_over_ordered_groups_is_that_of_the_order(size: int, width: int) -> None:
    x = f32(size, width)
    ordered = aligned_empty(x.shape)
    summed_order(ordered)[...] = sixteens(x)
    got = sum_of_ordered_squares(ordered)
    assert not np.array_equal(got, np.square(x, dtype=np.float64).sum(axis=0))  # it has rounded
    np.testing.assert_array_equal(got, sum_of_squares(x))


def test_scratch_starts_at_a_cache_line() -> None:
    for shape in [(1,), (3, 5), (32, 8192)]:
        scratch = aligned_empty(shape)
        assert scratch.shape == shape
        assert scratch.dtype == np.float32
        assert scratch.ctypes.data % 64 == 0


def test_ranges_include_zero() -> None:
    x = np.array([[1, -3, -1, 0], [2, -2, 4, 0]], np.float32)
    low, high = group_ranges(x, "w")
    np.testing.assert_array_equal(low, [0, -3, -1, 0])
    np.testing.assert_array_equal(high, [2, 0, 4, 0])
    x[1, 2] = np.nan
    with pytest.raises(InputError, match="w: the weight holds infinities or NaN"):
        group_ranges(x, "w")


@pytest.mark.parametrize(
    "scheme", [Scheme(4, 32, symmetric=False), Scheme(4, 32, symmetric=True), Scheme(8, 0, True)]
)
def test_values_are_rounded_to_the_grid_and_cut_at_its_ends(scheme: Scheme) -> None:
    x, scale = 3 * f32(32, 40), np.linspace(0.05, 0.9, 40, dtype=np.float32)
    if scheme.bits == 8:
        scale /= np.float32(40)
    zero = np.zeros(40, np.float32) if scheme.symmetric else np.arange(40, dtype=np.float32) % 16
    got, scratch = np.empty_like(x), np.empty_like(x)
    steps(x, scale, zero, scheme, got)
    least, most = scheme.limits
    exact = [
        [min(max(round(float(v / s)), least - int(z)), most - int(z)) for v, s, z in triples]
        for triples in (zip(row, scale, zero, strict=True) for row in x)
    ]
    assert {least, most} <= set((np.array(exact) + zero.astype(int)).flat), "both ends are met"
    np.testing.assert_array_equal(got, exact)
    error = np.square(np.array(exact) * scale.astype(np.float64) - x).sum(axis=0)
    np.testing.assert_allclose(squared_error(x, scale, zero, scheme, scratch), error, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 3, 4, 7, 15, 16, 18, 20, 31, 35])
def test_every_square_is_summed_once(size: int) -> None:
    """Behind the last sixteen and in it."""
    x = f32(size, 5)
    exact = np.square(x, dtype=np.float64).sum(axis=0)
    np.testing.assert_allclose(sum_of_squares(x.copy()), exact, rtol=1e-6)
