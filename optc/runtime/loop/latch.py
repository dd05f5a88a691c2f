"""`Latch`: something that happens once, and that may be waited for wherever Python runs."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _thread import LockType


class Latch:
    """As `threading.Event`, but no lock is shared: a signal handler or a finalizer may interrupt a
    thread in any of these methods and call them again, or wait for a thread that does."""

    def __init__(self) -> None:
        self._set = False
        self._waiters: dict[int, LockType] = {}  # by their id, each is one waiter's own

    @property
    def is_set(self) -> bool:
        """It has happened."""
        return self._set

    def set(self) -> None:
        """Let it happen; again has no effect."""
        self._set = True
        while self._waiters:
            try:
                self._waiters.popitem()[1].release()
            except KeyError:  # another thread took the last one
                return

    def wait(self, timeout_s: float | None = None) -> bool:
        """True if it has happened, after ``timeout_s`` at the latest."""
        if self._set:
            return True
        mine = allocate_lock()
        mine.acquire()
        self._waiters[id(mine)] = mine
        try:
            if not self._set:  # or `set` may have missed this one
                mine.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        finally:
            self._waiters.pop(id(mine), None)
        return self._set
