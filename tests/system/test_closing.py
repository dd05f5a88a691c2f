from __future__ import annotations

import pytest

from optc.system.closing import Closing


class Held(Closing):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_block_gets_it_and_closes_it() -> None:
    held = Held()
    with held as given:
        assert given is held
        assert held.closed == 0
    assert held.closed == 1


def test_what_ends_a_block_early_goes_on_to_the_caller() -> None:
    held = Held()
    with pytest.raises(KeyboardInterrupt), held:
        raise KeyboardInterrupt
    assert held.closed == 1
