"""What a module of tests finds there is no work of the collector; what it makes is."""

from __future__ import annotations

import gc
import weakref

from tests.support.cost.only_new import only_new_objects

__all__ = ["only_new_objects"]


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


EARLIER = Ring()


def test_new_objects_are_found_and_earlier_ones_are_not() -> None:
    new = Ring()
    found = [one for one in gc.get_objects() if type(one) is Ring]
    assert found == [new]


def test_new_rings_are_collected() -> None:
    gone = weakref.ref(Ring())
    gc.collect()
    assert gone() is None
