"""The two orders of eviction, entry by entry."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.runtime.kv.eviction import Eviction, Lfu, Lru, Order, make_order


def order(eviction: Eviction) -> Order[str]:
    made: Order[str] = make_order(eviction)
    return made


def test_names_make_orders() -> None:
    assert isinstance(order("lru"), Lru)
    assert isinstance(order("lfu"), Lfu)
    with pytest.raises(InputError, match=r"^prefix_eviction: eviction 'LRU' is not known"):
        make_order("LRU")


@pytest.mark.parametrize("again", ["use", "touch"])
def test_the_least_recently_used_goes_first(again: str) -> None:
    entries = order("lru")
    for name in "abc":
        entries.use(name)
    getattr(entries, again)("a")
    entries.evicted("b")
    assert list(entries) == ["b", "c", "a"]
    entries.remove("c")
    assert list(entries) == ["b", "a"]
    assert "a" in entries
    assert "c" not in entries


def test_the_least_frequently_used_goes_first_and_among_equals_the_least_recently() -> None:
    entries = order("lfu")
    for name in "abcab":
        entries.use(name)
    assert list(entries) == ["c", "a", "b"]
    entries.touch("a")
    assert list(entries) == ["c", "b", "a"], "a touch is no use, but it is recent"
    entries.use("c")
    assert list(entries) == ["b", "a", "c"]


def test_newcomers_weigh_as_much_as_what_was_evicted_before_them() -> None:
    entries = order("lfu")
    for name in "aaabb":
        entries.use(name)
    entries.evicted("b")  # of weight 2
    entries.remove("b")
    for name in "cddd":
        entries.use(name)
    assert list(entries) == ["a", "c", "d"], "3 of old, 1 + 2, 3 + 2"
    entries.evicted("d")
    entries.evicted("a")  # lighter, it was held until now: the age stays that of d
    entries.use("e")
    assert list(entries) == ["a", "c", "d", "e"], "e weighs 1 + 5"


def test_a_touched_entry_weighs_by_the_age_of_now() -> None:
    entries = order("lfu")
    for name in "abb":
        entries.use(name)
    entries.evicted("b")
    entries.remove("b")
    entries.use("c")
    assert list(entries) == ["a", "c"]
    entries.touch("a")  # 1 + 2 now
    assert list(entries) == ["c", "a"]


def test_who_is_touched_first_has_no_uses_and_who_goes_leaves_none() -> None:
    entries = order("lfu")
    entries.use("a")
    entries.touch("b")
    assert list(entries) == ["b", "a"]
    for _ in range(3):
        entries.use("b")
    entries.remove("b")
    assert "b" not in entries
    entries.touch("b")
    assert list(entries) == ["b", "a"]
