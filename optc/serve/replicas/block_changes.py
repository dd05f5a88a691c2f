"""`BlockChanges`: the prefixes that a replica's cache has, and how they changed since it was asked
last."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from optc.runtime.kv.prefix_node import Node
from optc.runtime.kv_events.events import number_of

#: Changes that are remembered; who asks later than that gets all blocks.
_KEPT = 1 << 16


@dataclass(frozen=True)
class Changes:
    """The blocks that came and went.

    Attributes:
        number: Changes so far; where to go on from.
        stored: Hashes of blocks that are there now.
        removed: Hashes of blocks that are gone.
        whole: ``stored`` are all blocks that there are, whatever was known before.
    """

    number: int
    stored: tuple[int, ...]
    removed: tuple[int, ...] = ()
    whole: bool = False


class BlockChanges:
    """A log of an engine's prefix cache (`optc.runtime.kv_events.events.StepLog`). Only hashes are
    told, so that those of salted requests are, too. The engine's thread writes it, others ask."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._lock = threading.Lock()
        self._have: set[int] = set()
        self._latest: deque[int] = deque(maxlen=kept)
        self._number = 0

    def stored(self, salt: str, node: Node) -> bool:
        """A block has got its keys and values."""
        self._note(number_of(node.digest), there=True)
        return True

    def removed(self, node: Node) -> None:
        """A block is gone."""
        self._note(number_of(node.digest), there=False)

    def flush(self) -> None:
        """Nothing: each change is told when somebody asks."""

    def close(self) -> None:
        """All blocks are gone."""
        with self._lock:
            self._number += 1 + len(self._latest)
            self._latest.clear()
            self._have.clear()

    def since(self, number: int) -> Changes:
        """The changes after so many; 0 before the first."""
        with self._lock:
            missed = self._number - number
            if not 0 <= missed <= len(self._latest):
                return Changes(self._number, tuple(self._have), whole=True)
            changed = set(list(self._latest)[len(self._latest) - missed :])
            stored = changed & self._have
            return Changes(self._number, tuple(stored), tuple(changed - stored))

    def _note(self, block: int, *, there: bool) -> None:
        with self._lock:
            (self._have.add if there else self._have.discard)(block)
            self._latest.append(block)
            self._number += 1
