from __future__ import annotations

import pytest

from optc.runtime.speculative.planning.ledger import (
    AT_FIRST,
    LEAST,
    LINE,
    MOST,
    MOST_LENT,
    SHARE,
    Ledger,
)


def test_what_is_promised_is_below_two_percent() -> None:
    assert pytest.approx(0.015) == SHARE + LINE
    assert (AT_FIRST, MOST_LENT, MOST, LEAST) == (2.0, 4.0, 16.0, -5.0)


def test_a_step_may_lose_the_balance_and_what_the_steps_to_come_are_lent() -> None:
    ledger = Ledger()
    assert ledger.budget(0) == 2.0
    assert ledger.budget(100) == pytest.approx(2.75)
    assert ledger.budget(10**6) == 6.0
    ledger.settle(-1.5)
    assert ledger.budget(100) == pytest.approx(1.25)


def test_steps_pay_their_share_until_enough_is_saved() -> None:
    ledger = Ledger(share=0.25)
    ledger.passed()
    assert ledger.balance == 2.0, "more than one is there already"
    ledger.settle(-2.0)
    saved = []
    for _ in range(6):
        ledger.passed()
        saved.append(ledger.balance)
    assert saved == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_wins_and_losses_are_bounded() -> None:
    ledger = Ledger()
    ledger.settle(3.0)
    assert ledger.balance == 5.0
    ledger.settle(100.0)
    assert ledger.balance == 16.0
    ledger.settle(-20.0)
    assert ledger.balance == -4.0
    ledger.settle(-20.0)
    assert ledger.balance == -5.0
    assert ledger.budget(10**6) < 0, "what is lent does not help whoever owes the most"


@pytest.mark.parametrize(("owed", "steps"), [(0.0, 1), (0.24, 1), (0.25, 2), (1.1, 5)])
def test_how_long_a_debt_is_paid_for(owed: float, steps: int) -> None:
    assert Ledger(share=0.25).wait(owed) == steps


def test_the_share_is_the_one_that_is_promised_if_nothing_is_said() -> None:
    ledger = Ledger()
    ledger.settle(-2.0)
    ledger.passed()
    assert ledger.balance == SHARE == 0.0075
