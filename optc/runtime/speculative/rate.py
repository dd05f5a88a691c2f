"""Live estimates: how often drafts hold, and how far times are from what was measured."""

from __future__ import annotations

from collections import deque

#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.05
#: A ratio is not believed to change more than this at once.
_MOST_CHANGE = 2.0
#: Values of a median, and from how many on it is trusted.
_RECENT, _ENOUGH = 9, 3


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


class Ratio:
    """A moving mean of ratios, 1 at first. One that is far off is taken for as far as is believed:
    the very first step of an engine takes a hundred times as long as later ones."""

    def __init__(self) -> None:
        self.value = 1.0
        self.count = 0

    def observe(self, ratio: float) -> None:
        """Add an observation."""
        ratio = min(max(ratio, self.value / _MOST_CHANGE), self.value * _MOST_CHANGE)
        self.count += 1
        self.value += (ratio - self.value) * max(_FORGET, 1 / self.count)


class RecentMedian:
    """The median of the latest values: a few that are far off do not move it."""

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
        self.value = sorted(self._values)[len(self._values) // 2]
