"""Live estimates: how often drafts hold, and how far times are from what was measured."""

from __future__ import annotations

#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.05
#: Weight, in tested drafts, of what is guessed at the beginning.
_PRIOR_WEIGHT = 2.0
#: A ratio is not believed to change more than this at once.
_MOST_CHANGE = 2.0


class Rate:
    """Acceptance: the share of the tested drafts that held.

    Args:
        rate: Guess that a few drafts outweigh.
    """

    def __init__(self, rate: float = 0.5) -> None:
        self._accepted, self._tested = rate * _PRIOR_WEIGHT, _PRIOR_WEIGHT
        self.verifications = 0

    @property
    def value(self) -> float:
        """Estimated probability that a draft is accepted if those before it are."""
        return self._accepted / self._tested

    def observe(self, drafted: int, accepted: int) -> None:
        """Add a verification; drafts after a rejected one were not tested."""
        keep = 1 - _FORGET
        self._accepted = self._accepted * keep + accepted
        self._tested = self._tested * keep + min(accepted + 1, drafted)
        self.verifications += 1


class Ratio:
    """A moving mean of ratios near 1; the first ones count in full."""

    def __init__(self) -> None:
        self.value = 1.0
        self.count = 0

    def observe(self, ratio: float) -> None:
        """Add an observation; one that is far off is taken for as far as is believed."""
        if self.count:
            ratio = min(max(ratio, self.value / _MOST_CHANGE), self.value * _MOST_CHANGE)
        self.count += 1
        self.value += (ratio - self.value) * max(_FORGET, 1 / self.count)
