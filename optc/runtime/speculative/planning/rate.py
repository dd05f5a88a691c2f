"""Live estimates: how often drafts hold, and how far times are from what was measured."""

from __future__ import annotations

from collections import deque
from itertools import chain

#: Values of a median, and from how many on it is trusted.
_RECENT, _ENOUGH = 9, 3
#: How often what is guessed of a line counts: as many points must say otherwise before they are
#: believed, since whoever stops drafting sees no others.
_GUESSES = 4


class Rate:
    """Acceptance: the share of the tested drafts that held.

    Args:
        guess: What is believed at the beginning.
        weight: Of the guess, in tested drafts.
        forget: Older drafts lose this fraction of their weight with each new one.
    """

    def __init__(self, guess: float, weight: float, forget: float) -> None:
        self._accepted, self._tested = guess * weight, weight
        self._keep = 1 - forget

    @property
    def value(self) -> float:
        """Estimated probability that a draft is accepted if those before it are."""
        return self._accepted / self._tested

    def observe(self, held: bool) -> None:
        """Add a tested draft."""
        self._accepted = self._accepted * self._keep + held
        self._tested = self._tested * self._keep + 1.0


class RecentMedian:
    """The median of the latest values, 1 before them: a few that are far off do not move it."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_RECENT)
        self.value = 1.0

    @property
    def known(self) -> bool:
        """There were enough values to tell which are far off."""
        return len(self._values) >= _ENOUGH

    def observe(self, value: float) -> None:
        """Add a value."""
        self._values.append(value)
        self.value = _median([*self._values])


class MedianLine:
    """``y = at_0 + slope * x``, where the slope is the median of those between any two of the
    latest points (Sen, 1968): a few steps in which the machine did something else do not move it.

    Some guesses count among the slopes, and at first among the values at 0, which are 0. Where all
    x are alike, nothing tells the two apart: then the guessed slope holds. Another rule would keep
    a single draft, and what reading the draft model's weights pushes out of the caches, from ever
    being followed by steps of more drafts, which would show that rows cost little.

    Args:
        guess: The slope.

    Attributes:
        at_0: Where x is 0.
        slope: For each 1 of x.
    """

    def __init__(self, guess: float) -> None:
        self.at_0, self.slope = 0.0, guess
        self._guesses = (guess,) * _GUESSES
        self._points: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._slopes: deque[list[float]] = deque(maxlen=_RECENT)  # of each point to those before

    def observe(self, x: float, y: float) -> None:
        """Add a point."""
        self._slopes.append([(y - other) / (x - at) for at, other in self._points if at != x])
        self._points.append((x, y))
        self.slope = _median([*self._guesses, *chain.from_iterable(self._slopes)])
        rests = [other - self.slope * at for at, other in self._points]
        self.at_0 = _median([*(0.0,) * min(_GUESSES, _RECENT - len(rests)), *rests])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
