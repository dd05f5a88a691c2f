"""The queue of those who wait: in order, and no slower for each when there are many."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.scheduling.policy import Rank, place
from optc.runtime.scheduling.waiting import WaitingQueue

looks = 0


@dataclass(eq=False)
class Item:
    """Counts how often it is looked at."""

    id: int
    due: int
    idle: bool = False
    _rank: Rank = field(init=False)

    def __post_init__(self) -> None:
        self._rank = Rank(self.due, self.id)

    @property
    def rank(self) -> Rank:
        global looks
        looks += 1
        return self._rank

    def __eq__(self, other: object) -> bool:
        global looks
        looks += 1
        return self is other

    __hash__ = None  # type: ignore[assignment]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=200))
def test_any_order_of_calls(actions: list[tuple[bool, int]]) -> None:
    queue: WaitingQueue[Item] = WaitingQueue()
    known: list[Item] = []
    for number, (comes, value) in enumerate(actions):
        if comes or not known:
            known.append(Item(number, value))
            queue.add(known[-1])
            known.sort(key=place)
        else:
            queue.remove(gone := known.pop(value % len(known)))
            with pytest.raises(ValueError, match="is not in the queue"):
                queue.remove(gone)
        assert [item.id for item in queue] == [item.id for item in known]
        assert len(queue) == len(known)


@pytest.mark.parametrize("order", ["first", "last", "middle"])
def test_nobody_is_looked_at_by_all_others(order: str) -> None:
    global looks
    queue: WaitingQueue[Item] = WaitingQueue()
    items = [Item(number, number // 7) for number in range(2000)]
    looks = 0
    for item in items:
        queue.add(item)
    while items:
        at = {"first": 0, "last": len(items) - 1, "middle": len(items) // 2}[order]
        queue.remove(items.pop(at))
    assert looks < 2000 * 40
    assert not len(queue)
