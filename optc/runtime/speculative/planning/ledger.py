"""`Ledger`: speculation may spend a share of the time, and must earn what goes beyond.

Time is counted in plain steps. At any moment ``balance`` is at most what drafts have won minus what
they have lost, plus `SHARE` of the steps so far. Whoever spends no more than `budget` therefore
never loses more than `SHARE` of the steps and one line of credit, whatever is accepted: a request
of n steps is lent `LINE` * n at most, which is not forgiven at its end. So a run of n plain steps
takes at most n * (1 + SHARE + LINE) + AT_FIRST of them.
"""

from __future__ import annotations

#: Share of all time that drafts may lose.
SHARE = 0.0075
#: What may be lost once, to find out how often drafts hold: without it one wrong draft at the
#: beginning keeps the first requests from those that would have paid.
AT_FIRST = 2.0
#: What a request may borrow of the time that is still before it, and most that is ever lent.
LINE, MOST_LENT = 0.0075, 4.0
#: Most that is saved up of what was won, and of the share.
MOST, MOST_OF_SHARE = 16.0, 1.0
#: Most that is owed. Below what is lent nobody can spend, so that only surprises are forgiven.
LEAST = -MOST_LENT - 1.0


class Ledger:
    """The account of what drafts have won and lost against plain decoding, in plain steps.

    Args:
        share: Of all time that drafts may lose.
    """

    def __init__(self, share: float = SHARE) -> None:
        self.balance = AT_FIRST
        self._share = share

    def budget(self, steps: int) -> float:
        """The most that a step may lose if so many plain steps are still to come; 0 or less for
        nothing."""
        return self.balance + min(MOST_LENT, LINE * steps)

    def wait(self, owed: float) -> int:
        """Steps until the share of their time has paid for ``owed``."""
        return int(owed / self._share) + 1

    def passed(self) -> None:
        """Take note of a step."""
        if self.balance < MOST_OF_SHARE:
            self.balance += self._share

    def settle(self, won: float) -> None:
        """Take note of what drafts won in a step, negative where they lost."""
        self.balance = min(MOST, max(LEAST, self.balance + won))
