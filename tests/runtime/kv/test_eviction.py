"""The two orders of eviction, entry by entry."""

from __future__ import annotations

import random
from collections.abc import Iterator

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


class _Naive:
    """Both orders by their definitions: weights and times of all entries, sorted."""

    def __init__(self, eviction: Eviction) -> None:
        self._counts = eviction == "lfu"
        self._age = self._time = 0
        self._uses: dict[str, int] = {}
        self._keys: dict[str, tuple[int, int]] = {}

    def use(self, entry: str, more: int = 1) -> None:
        self._uses[entry] = self._uses.get(entry, 0) + more
        self._time += 1
        weight = self._uses[entry] + self._age if self._counts else 0
        self._keys[entry] = weight, self._time

    def touch(self, entry: str) -> None:
        self.use(entry, 0)

    def remove(self, entry: str) -> None:
        del self._uses[entry], self._keys[entry]

    def evicted(self, entry: str) -> None:
        self._age = max(self._age, self._keys[entry][0])

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._keys, key=self._keys.__getitem__))

    def __contains__(self, entry: object) -> bool:
        return entry in self._keys


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_any_sequence_of_calls_is_ordered_as_defined(eviction: Eviction) -> None:
    chance = random.Random(0)
    for _ in range(40):
        entries, naive = order(eviction), _Naive(eviction)
        for _ in range(40):
            name = chance.choice("abcdef")
            calls = ["use", "touch", "remove", "evicted"] if name in naive else ["use", "touch"]
            call = chance.choice(calls)
            getattr(entries, call)(name)
            getattr(naive, call)(name)
            assert list(entries) == list(naive)
            assert [one in entries for one in "abcdef"] == [one in naive for one in "abcdef"]
