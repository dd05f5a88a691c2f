"""Rows in any order are given back from their ranges."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.executable.row_ranges import ranges_of, rows_of

CASES = {
    "none": ([], ()),
    "one": ([7], ((7, 1, 1),)),
    "all": ([0, 1, 2, 3], ((0, 1, 4),)),
    "pairs to halves": ([0, 2, 4, 1, 3, 5], ((0, 2, 3), (1, 2, 3))),
    "backwards": ([3, 2, 1], ((3, -1, 3),)),
    "again": ([2, 2, 5], ((2, 0, 2), (5, 1, 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_ranges(name: str) -> None:
    rows, ranges = CASES[name]
    assert ranges_of(np.array(rows, np.int64)) == ranges
    np.testing.assert_array_equal(rows_of(ranges), rows)


def test_any_order_comes_back() -> None:
    rows = np.random.default_rng(0).integers(0, 9, 50)
    np.testing.assert_array_equal(rows_of(ranges_of(rows)), rows)
