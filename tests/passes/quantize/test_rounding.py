"""Sums in the order that is written down, and scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.quantize.rounding import (
    aligned_empty,
    sixteens,
    sum_of_ordered_squares,
    sum_of_squares,
    summed_order,
)
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
