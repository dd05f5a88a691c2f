"""Quantiles of a stream in bounded memory: counts in buckets whose width grows with their value.

DDSketch (Masson, Rim and Lee, 2019): bucket i holds the values in ``(g^(i-1), g^i]``, so that its
middle is within a stated relative error of each of them, and sketches of the same error can be
added. Durations from a microsecond to eleven days need 2,763 buckets at the default error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

#: Relative error of a quantile.
ERROR = 0.005
#: Smaller values count as zero, larger ones as the largest.
SMALLEST, LARGEST = 1e-6, 1e6


@dataclass
class Quantiles:
    """Quantiles of values, in seconds or any other unit, that were added one by one.

    Attributes:
        error: Relative error of `quantile` for values between `SMALLEST` and `LARGEST`.
        count: Values.
        total: Their sum.
        zeros: Values that count as zero.
        buckets: How many values each bucket holds.
    """

    error: float = ERROR
    count: int = 0
    total: float = 0.0
    zeros: int = 0
    buckets: dict[int, int] = field(default_factory=dict)  # no Counter: asdict breaks those

    def add(self, value: float) -> None:
        """Add a value, at least 0."""
        self.count += 1
        self.total += value
        if value < SMALLEST:
            self.zeros += 1
        else:
            self._count({math.ceil(math.log(min(value, LARGEST)) / self._base): 1})

    def extend(self, values: Sequence[float]) -> None:
        """Add several values at once."""
        array = np.asarray(values, np.float64)
        self.count += array.size
        self.total += float(array.sum())
        counted = np.minimum(array[array >= SMALLEST], LARGEST)
        self.zeros += array.size - counted.size
        buckets, counts = np.unique(np.ceil(np.log(counted) / self._base), return_counts=True)
        self._count(dict(zip(map(int, buckets.tolist()), counts.tolist(), strict=True)))

    def copy(self) -> Quantiles:
        """A sketch of its own that has seen the same."""
        return replace(self, buckets=self.buckets.copy())

    @property
    def mean(self) -> float | None:
        """Mean of the values, exact; None without any."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The smallest value that at least ``share`` of all do not exceed, within ``error``; None
        without any."""
        if not self.count:
            return None
        left = max(1, math.ceil(share * self.count)) - self.zeros
        if left <= 0:
            return 0.0
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return math.exp(bucket * self._base) * (1 - self.error)
        raise AssertionError("the buckets hold fewer values than were counted")

    def histogram(self, bounds: Sequence[float]) -> list[tuple[float, int]]:
        """Each of ``bounds`` with the number of values up to it, as Prometheus has histograms: a
        value within ``error`` of a bound may count on either side, and always on the same."""
        ordered = sorted(self.buckets)
        middles = np.exp(np.array(ordered, np.float64) * self._base) * (1 - self.error)
        counts = np.cumsum([self.zeros, *(self.buckets[bucket] for bucket in ordered)])
        places = np.searchsorted(middles, np.asarray(bounds, np.float64), side="right")
        return list(zip(bounds, counts[places].tolist(), strict=True))

    @property
    def _base(self) -> float:
        """log g, g = (1 + error) / (1 - error)"""
        return math.log1p(2 * self.error / (1 - self.error))

    def _count(self, counts: Mapping[int, int]) -> None:
        for bucket, count in counts.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
