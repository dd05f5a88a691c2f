"""Rows of a matrix in any order, as a few ranges: what heads that are put in another order give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
#: First row, distance to the next, and how many.
Range = tuple[int, int, int]


def ranges_of(rows: Ints) -> tuple[Range, ...]:
    """Rows [N] as ranges, each as long as it can be, in their order."""
    found: list[Range] = []
    start = 0
    while start < len(rows):
        step = int(rows[start + 1] - rows[start]) if start + 1 < len(rows) else 1
        breaks = np.flatnonzero(np.diff(rows[start:]) != step)
        count = int(breaks[0]) + 1 if len(breaks) else len(rows) - start
        found.append((int(rows[start]), step, count))
        start += count
    return tuple(found)


def rows_of(ranges: tuple[Range, ...]) -> Ints:
    """The rows that `ranges_of` was given."""
    parts = [first + step * np.arange(count) for first, step, count in ranges]
    rows: Ints = np.concatenate([np.zeros(0, np.int64), *parts])
    return rows
