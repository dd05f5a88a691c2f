"""Quantiles of a stream in bounded memory: counts in buckets whose width grows with their value.

DDSketch (Masson, Rim and Lee, 2019): bucket i holds the values in ``(g^(i-1), g^i]``, so that its
middle is within a stated relative error of each of them, and sketches of the same error can be
added. Durations from a microsecond to eleven days need 2,763 buckets at the default error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

#: Relative error of a quantile.
ERROR = 0.005
#: Smaller values count as zero, larger ones as the largest.
SMALLEST, LARGEST = 1e-6, 1e6


class Quantiles:
    """Quantiles of values, in seconds or any other unit, that were added one by one.

    Args:
        error: Relative error of `quantile` for values between `SMALLEST` and `LARGEST`.
    """

    def __init__(self, error: float = ERROR) -> None:
        self.error = error
        self.count = 0
        self.total = 0.0
        self._base = math.log1p(2 * error / (1 - error))  # log g, g = (1 + error) / (1 - error)
        self._zeros = 0
        self._buckets: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Add a value, at least 0."""
        self.extend((value,))

    def extend(self, values: Sequence[float]) -> None:
        """Add several values at once."""
        array = np.asarray(values, np.float64)
        self.count += array.size
        self.total += float(array.sum())
        counted = np.minimum(array[array >= SMALLEST], LARGEST)
        self._zeros += array.size - counted.size
        buckets, counts = np.unique(np.ceil(np.log(counted) / self._base), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._buckets[int(bucket)] += count

    def merge(self, other: Quantiles) -> None:
        """Add all that ``other`` has seen.

        Raises:
            ValueError: Its error is another one.
        """
        if other.error != self.error:
            raise ValueError(f"errors {self.error} and {other.error} do not mix")
        self.count += other.count
        self.total += other.total
        self._zeros += other._zeros
        self._buckets.update(other._buckets)

    def copy(self) -> Quantiles:
        """A sketch of its own that has seen the same."""
        copied = Quantiles(self.error)
        copied.merge(self)
        return copied

    @property
    def mean(self) -> float | None:
        """Mean of the values, exact; None without any."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The smallest value that at least ``share`` of all do not exceed, within ``error``; None
        without any."""
        if not self.count:
            return None
        left = max(1, math.ceil(share * self.count)) - self._zeros
        if left <= 0:
            return 0.0
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return math.exp(bucket * self._base) * (1 - self.error)
        raise AssertionError("the buckets hold fewer values than were counted")
