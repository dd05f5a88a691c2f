"""`Ledger`: speculation may spend a share of the time, and must earn what goes beyond."""

from __future__ import annotations

#: Share of all time that drafts may lose.
SHARE = 0.01
#: In plain steps: what can be spent at the beginning, saved up at most, and owed at most.
CREDIT, MOST, LEAST = 1.0, 4.0, -1.0


class Ledger:
    """What drafts have won and lost against plain decoding, in plain steps.

    It begins with one step to spend, so that drafts can be tried, and gets 1 % of every step's
    time. Debts are limited, as savings are: bad luck is forgotten as good luck is.
    """

    def __init__(self) -> None:
        self.balance = CREDIT

    @property
    def in_debt(self) -> bool:
        """More was lost than may be."""
        return self.balance < 0

    def passed(self, steps: float) -> None:
        """Take note of the time of any step, in plain ones."""
        self._add(SHARE * steps)

    def settle(self, won: float) -> None:
        """Take note of what drafts won in a step, negative where they lost. A step during which
        the machine did something else must not stop them for long: one is lost at most."""
        self._add(max(won, -1.0))

    def _add(self, steps: float) -> None:
        self.balance = min(MOST, max(LEAST, self.balance + steps))
