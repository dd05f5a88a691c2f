"""Live estimates: how often drafts hold, and how far times are from what was measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.05
#: No value is believed to be more than so many times what was expected.
_MOST_CHANGE = 2.0
#: Values of a median, and from how many on it is trusted.
_RECENT, _ENOUGH = 9, 3
#: What steps with drafts take beyond the expected, before anything is known: as many slow steps
#: must be seen until most are, since whoever stops drafting sees no others.
_GUESSES = (0.0,) * 4
#: Weight of a slope of 1, against deviations as large as the mean.
_PULL = 0.02


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


class Line:
    """A moving least-squares line y = at_0 + slope * x, its slope pulled towards 1, which decides
    as long as all x are alike. Values far above the line are taken for as far as is believed: the
    first step of an engine takes a hundred times as long as later ones."""

    def __init__(self) -> None:
        self.at_0, self.slope = 0.0, 1.0
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, x: float, y: float) -> None:
        """Add a point; both are above 0."""
        y = min(y, _MOST_CHANGE * (self.at_0 + self.slope * x))
        sums = (self._weight, self._x, self._y, self._xx, self._xy)
        new = (1.0, x, y, x * x, x * y)
        self._weight, self._x, self._y, self._xx, self._xy = (
            old * (1 - _FORGET) + value for old, value in zip(sums, new, strict=True)
        )
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x**2
        covariance = self._xy / self._weight - mean_x * mean_y
        pull = _PULL * mean_x**2
        self.slope = max(1.0, (covariance + pull) / (variance + pull))
        self.at_0 = max(0.0, mean_y - self.slope * mean_x)


class RecentMedian:
    """The median of the latest values: a few that are far off do not move it.

    Args:
        guesses: Values before the first one.
    """

    def __init__(self, guesses: Sequence[float] = ()) -> None:
        self._values: deque[float] = deque(guesses, maxlen=_RECENT)
        self.value = guesses[0] if guesses else 1.0

    @property
    def known(self) -> bool:
        """There were enough values to tell which are far off."""
        return len(self._values) >= _ENOUGH

    def observe(self, value: float) -> None:
        """Add a value."""
        self._values.append(value)
        self.value = _median([*self._values])


class StepExtra:
    """What steps with drafts take beyond the expected, ``fixed + slope * drafts``: the slope is the
    median of those between any two of the latest steps (Sen, 1968), so that a few steps in which
    the machine did something else do not move it.

    Both are 0 at the beginning. Where all steps have had equally many drafts, nothing tells a time
    of the step from one of its rows; then all of it is the step's. The other guess would keep a
    single draft, and what reading the draft model's weights pushes out of the caches, from ever
    being followed by steps of more drafts, which would show that rows cost little.

    Attributes:
        fixed: Of a step.
        slope: Of each draft.
    """

    def __init__(self) -> None:
        self.fixed = self.slope = 0.0
        self._steps: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._slopes: deque[list[float]] = deque(maxlen=_RECENT)  # of each step to those before

    def observe(self, drafts: int, extra: float) -> None:
        """Add a step."""
        self._slopes.append(
            [(extra - other) / (drafts - count) for count, other in self._steps if count != drafts]
        )
        self._steps.append((drafts, extra))
        self.slope = _median([*_GUESSES, *chain.from_iterable(self._slopes)])
        rests = [other - self.slope * count for count, other in self._steps]
        self.fixed = _median([*_GUESSES[: _RECENT - len(rests)], *rests])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
