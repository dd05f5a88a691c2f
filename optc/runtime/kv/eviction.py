"""The order in which cached blocks go: least recently used, or least frequently used with aging."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, Literal, Protocol, TypeVar

from optc.errors import InputError

#: How cached prefixes are evicted.
Eviction = Literal["lru", "lfu"]

K = TypeVar("K", bound=Hashable)


class Order(Protocol[K]):
    """Entries in the order of their eviction, the first to go first."""

    def use(self, entry: K) -> None:
        """A request goes on from the entry, or made it."""
        ...

    def touch(self, entry: K) -> None:
        """A request that `use` was called for goes on with the entry, or the entry was brought back
        for one: no use of its own."""
        ...

    def remove(self, entry: K) -> None:
        """Take an entry out."""
        ...

    def evicted(self, entry: K) -> None:
        """Note that the entry, still here, goes because others need its room."""
        ...

    def __iter__(self) -> Iterator[K]: ...

    def __contains__(self, entry: object) -> bool: ...


class Lru(Generic[K]):
    """Least recently used first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[K, None] = OrderedDict()

    def use(self, entry: K) -> None:
        """Move the entry to the end."""
        self._entries[entry] = None
        self._entries.move_to_end(entry)

    def touch(self, entry: K) -> None:
        """The same as `use`."""
        self.use(entry)

    def remove(self, entry: K) -> None:
        """Take an entry out."""
        del self._entries[entry]

    def evicted(self, entry: K) -> None:
        """Nothing to note."""

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries


class Lfu(Generic[K]):
    """Fewest uses first, among equals the least recently used (LFU-DA: Arlitt et al., 2000).

    An entry's weight is the number of its uses, and the weight of the heaviest entry that had been
    evicted when it was used or touched last, so that what was popular long ago goes in the end.
    """

    def __init__(self) -> None:
        self._age = 0
        self._uses: dict[K, int] = {}
        self._weights: dict[K, int] = {}
        self._entries: dict[int, OrderedDict[K, None]] = {}  # by weight

    def use(self, entry: K) -> None:
        """Count a use."""
        self._weigh(entry, self._uses.get(entry, 0) + 1)

    def touch(self, entry: K) -> None:
        """Weigh the entry by the age of now; one that is new has no uses."""
        self._weigh(entry, self._uses.get(entry, 0))

    def remove(self, entry: K) -> None:
        """Take an entry out and forget its uses."""
        self._leave(entry)
        del self._uses[entry], self._weights[entry]

    def evicted(self, entry: K) -> None:
        """Let all others age up to this entry's weight."""
        self._age = max(self._age, self._weights[entry])

    def __iter__(self) -> Iterator[K]:
        for weight in sorted(self._entries):
            yield from self._entries[weight]

    def __contains__(self, entry: object) -> bool:
        return entry in self._uses

    def _weigh(self, entry: K, uses: int) -> None:
        self._leave(entry)
        self._uses[entry] = uses
        self._weights[entry] = weight = uses + self._age
        self._entries.setdefault(weight, OrderedDict())[entry] = None

    def _leave(self, entry: K) -> None:
        weight = self._weights.get(entry)
        if weight is None:
            return
        del self._entries[weight][entry]
        if not self._entries[weight]:
            del self._entries[weight]


def make_order(eviction: str) -> Order[K]:
    """The order that a user asks for by name.

    Raises:
        InputError: There is no such order.
    """
    if eviction == "lru":
        return Lru()
    if eviction == "lfu":
        return Lfu()
    raise InputError(
        f"eviction {eviction!r} is not known", where="prefix_eviction", hint="one of lru, lfu"
    )
