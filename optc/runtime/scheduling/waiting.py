"""`WaitingQueue`: requests in the order of `policy`, however many there are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from optc.runtime.scheduling.policy import Rank, Ranked, place

W = TypeVar("W", bound=Ranked)

#: Empty places at the front that are left for later.
_GAP = 64


class WaitingQueue(Generic[W]):
    """A sorted list. A request is found by its place, and those at the front leave a gap that is
    closed now and then: nothing compares or moves all others, but for one copy of pointers where
    somebody comes or goes in the middle."""

    def __init__(self) -> None:
        self._entries: list[W | None] = []  # None in the gap
        self._first = 0

    def __len__(self) -> int:
        return len(self._entries) - self._first

    def __iter__(self) -> Iterator[W]:
        for at in range(self._first, len(self._entries)):
            request = self._entries[at]
            if request is not None:
                yield request

    def add(self, request: W) -> None:
        """Put a request at its place, which must not change from now on."""
        insort(self._entries, request, lo=self._first, key=_place)

    def remove(self, request: W) -> None:
        """Take a request out.

        Raises:
            ValueError: It is not here.
        """
        at = bisect_left(self._entries, place(request), lo=self._first, key=_place)
        if at == len(self._entries) or self._entries[at] is not request:
            raise ValueError(f"request {request.id} is not in the queue")
        if at > self._first:
            del self._entries[at]
            return
        self._entries[at] = None
        self._first += 1
        if self._first > max(_GAP, len(self._entries) // 2):
            del self._entries[: self._first]
            self._first = 0


def _place(request: Ranked | None) -> tuple[Rank, int]:
    if request is None:
        raise ValueError("the gap has no place")
    return place(request)
