"""Scales from values to places on a drawing, and the round values that ticks stand at."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Beyond these a damaged report would make places that no drawing has.
_LARGEST, _SMALLEST = 1e15, 1e-15


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end]; values outside are put on the nearer end.

    Attributes:
        low: Smallest value.
        high: Largest value; above ``low``.
        start: Where ``low`` is.
        end: Where ``high`` is.
        logarithmic: Equal ratios are equally far apart.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the scale, roughly so many."""
        return self._decades(about) if self.logarithmic else self._steps(about)

    def _steps(self, about: int) -> list[float]:
        rough = (self.high - self.low) / about
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(base * k for k in (1, 2, 5, 10) if base * k >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _decades(self, about: int) -> list[float]:
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        within = (1, 2, 5) if last - first <= 2 else (1,)
        every = max(1, (last - first) // about) if len(within) == 1 else 1
        found = [m * 10.0**power for power in range(first, last + 1, every) for m in within]
        return [v for v in found if self.low * 0.999 <= v <= self.high * 1.001]


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """A scale of equal differences around the values from ``low`` to ``high``."""
    low, high = (min(max(value, -_LARGEST), _LARGEST) for value in (low, high))
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-3):
        room = max(abs(low) * 0.1, 1e-3)
        low, high = low - room, low + room
    return Scale(low, high, start, end)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """A scale of equal ratios around the values from ``low`` to ``high``, which are positive."""
    low, high = (min(max(value, _SMALLEST), _LARGEST) for value in (low, high))
    if high < 1.05 * low:
        low, high = low / 2, high * 2
    return Scale(low, high, start, end, logarithmic=True)
