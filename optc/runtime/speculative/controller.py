"""How many tokens to draft: as many as pay, by live costs and live acceptance.

A draft costs a row in a step that everyone waits for, and brings a token if it and all before it
are accepted. With B sequences in the step, an acceptance rate p and a row that lengthens the step
by the share s of its time, k drafts of one request win it ``p + p^2 + ... + p^k`` tokens and cost
the B sequences ``k * s * B`` of theirs. k is where the difference is largest; 0 if it is never
above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Most drafts of a request in a step.
MAX_DRAFTED = 8
#: A request whose drafts do not pay tries one every so many steps, to notice if that changes.
_PROBE_STEPS = 64
#: Older observations lose this fraction of their weight with each new one.
_FORGET = 0.05
#: Before it is measured, a row is taken to lengthen the step by this share ...
_PRIOR_SHARE = 0.05
#: ... with the weight of one observation a row off the mean.
_PRIOR_WEIGHT = 1.0
#: Gains below this many tokens a step are within the error of the estimates.
_MARGIN = 0.02


class StepCosts:
    """Time of a decode step against its rows: a line through the latest observations."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = self._seconds = 0.0  # weighted means
        self._variance = self._covariance = 0.0  # weighted sums about the means

    def observe(self, rows: int, seconds: float) -> None:
        """Add a step of decodes and drafts only."""
        keep = 1 - _FORGET
        self._weight = self._weight * keep + 1
        off_rows, off_seconds = rows - self._rows, seconds - self._seconds
        self._rows += off_rows / self._weight
        self._seconds += off_seconds / self._weight
        self._variance = self._variance * keep + off_rows * (rows - self._rows)
        self._covariance = self._covariance * keep + off_rows * (seconds - self._seconds)

    def row_share(self, rows: int) -> float:
        """By which share of its time a row more lengthens a step of ``rows`` rows, at least 0."""
        if not self._seconds:
            return _PRIOR_SHARE
        prior = _PRIOR_SHARE * self._seconds
        slope = (self._covariance + _PRIOR_WEIGHT * prior) / (self._variance + _PRIOR_WEIGHT)
        # Noise may tilt the line; a step does not get shorter with its rows, nor does a row
        # cost more than a step of one row.
        slope = min(max(slope, 0.0), self._seconds)
        return slope / max(self._seconds + slope * (rows - self._rows), slope)


@dataclass
class Acceptance:
    """Live acceptance of one request's drafts. Begins with a guess that a few drafts outweigh."""

    accepted: float = 1.0
    tested: float = 2.0
    idle_steps: int = 0

    @property
    def rate(self) -> float:
        """Estimated probability that a draft is accepted if those before it are."""
        return self.accepted / self.tested

    def observe(self, drafted: int, accepted: int) -> None:
        """Add a verification; drafts after a rejected one were not tested."""
        keep = 1 - _FORGET
        self.accepted = self.accepted * keep + accepted
        self.tested = self.tested * keep + min(accepted + 1, drafted)


def best_count(rate: float, row_share: float, sequences: int, limit: int) -> int:
    """The number of drafts with the largest gain (see the module), at most ``limit``."""
    best, best_gain, gain, chance = 0, _MARGIN, 0.0, 1.0
    for count in range(1, limit + 1):
        chance *= rate
        gain += chance - sequences * row_share
        if gain > best_gain:
            best, best_gain = count, gain
    return best


class Controller(Protocol):
    """Chooses how many tokens to draft."""

    def counts(self, requests: Sequence[Acceptance], sequences: int) -> list[int]:
        """Drafts for each of the requests in a step of ``sequences`` sequences."""
        ...

    def observe(self, rows: int, seconds: float) -> None:
        """Take note of a step of decodes and drafts only."""
        ...


class BreakEven:
    """Drafts only what pays.

    Args:
        limit: Most drafts of a request in a step.
    """

    def __init__(self, limit: int = MAX_DRAFTED) -> None:
        self._limit = limit
        self._costs = StepCosts()

    def counts(self, requests: Sequence[Acceptance], sequences: int) -> list[int]:
        """What pays; now and then one draft where nothing does."""
        share = self._costs.row_share(sequences)
        return [self._count(acceptance, share, sequences) for acceptance in requests]

    def observe(self, rows: int, seconds: float) -> None:
        """Learn what rows cost."""
        self._costs.observe(rows, seconds)

    def _count(self, acceptance: Acceptance, share: float, sequences: int) -> int:
        count = best_count(acceptance.rate, share, sequences, self._limit)
        acceptance.idle_steps = 0 if count else acceptance.idle_steps + 1
        if acceptance.idle_steps == _PROBE_STEPS:
            acceptance.idle_steps = 0
            return 1
        return count


@dataclass(frozen=True)
class Fixed:
    """Always the same number of drafts, paying or not."""

    drafts: int

    def counts(self, requests: Sequence[Acceptance], sequences: int) -> list[int]:
        """The number it was made with."""
        return [self.drafts] * len(requests)

    def observe(self, rows: int, seconds: float) -> None:
        """Nothing is learned."""
