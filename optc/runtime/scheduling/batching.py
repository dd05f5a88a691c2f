"""When waiting requests may be admitted: continuously, or in batches that run to their end.

Continuous batching (Yu et al., 2022) is what one wants; the other two are what servers did before
it, to be measured against. A static batch here is better than theirs: sequences that ended cost
nothing, and their blocks are free for the rest of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal, Protocol

from optc.errors import InputError

#: How requests are batched.
BatchingMode = Literal["continuous", "static", "dynamic"]
MODES: tuple[BatchingMode, ...] = ("continuous", "static", "dynamic")


class Member(Protocol):
    """A request; those of one ``leader_id`` belong to the same batch."""

    leader_id: int


class Batching(Protocol):
    """Decides who may be admitted."""

    def plan(self, running: Sequence[Member], waiting: Sequence[Member]) -> None:
        """Look at the queues before a step."""
        ...

    def admits(self, request: Member) -> bool:
        """Whether a waiting request may be admitted now."""
        ...

    def wait_s(self, running: Sequence[Member], waiting: Sequence[Member]) -> float:
        """Seconds until `plan` can admit somebody; 0 is now."""
        ...


class Continuous:
    """Everyone, as soon as there is room."""

    def plan(self, running: Sequence[Member], waiting: Sequence[Member]) -> None:
        """Nothing to plan."""

    def admits(self, request: Member) -> bool:
        """Always."""
        return True

    def wait_s(self, running: Sequence[Member], waiting: Sequence[Member]) -> float:
        """No time."""
        return 0.0


class Batches:
    """A batch of waiting requests; the next is formed when all of it ended.

    Args:
        size: Most requests of a batch.
        window_s: How long the first request waits for others, unless there are ``size``.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self, size: int, window_s: float = 0.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._size = size
        self._window_s = window_s
        self._clock = clock
        self._batch: set[int] = set()  # leaders
        self._opened_s: float | None = None

    def plan(self, running: Sequence[Member], waiting: Sequence[Member]) -> None:
        """Form the next batch if the last one ended and the window closed."""
        if not self._ended(running, waiting) or self.wait_s(running, waiting) > 0:
            return
        self._batch = {request.leader_id for request in islice(waiting, self._size)}
        self._opened_s = None

    def admits(self, request: Member) -> bool:
        """Members only."""
        return request.leader_id in self._batch

    def wait_s(self, running: Sequence[Member], waiting: Sequence[Member]) -> float:
        """What is left of the window, which opens when this first sees requests wait for it."""
        if not self._window_s or not waiting or not self._ended(running, waiting):
            return 0.0
        if self._opened_s is None:
            self._opened_s = self._clock()
        if len(waiting) >= self._size:
            return 0.0
        return max(0.0, self._opened_s + self._window_s - self._clock())

    def _ended(self, running: Sequence[Member], waiting: Sequence[Member]) -> bool:
        return not running and not any(self.admits(request) for request in waiting)


def make_batching(
    mode: str, window_ms: float, size: int, clock: Callable[[], float] = time.perf_counter
) -> Batching:
    """The batching that a user asks for by name.

    Args:
        mode: One of `MODES`.
        window_ms: Window of ``dynamic``, in milliseconds.
        size: Most requests of a batch.
        clock: Seconds of a monotonic clock.

    Raises:
        InputError: There is no such mode, or the window is not above 0.
    """
    if mode == "continuous":
        return Continuous()
    if mode == "static":
        return Batches(size)
    if mode != "dynamic":
        raise InputError(
            f"batching {mode!r} is not known", where="batching", hint=f"one of {', '.join(MODES)}"
        )
    if not 0 < window_ms < float("inf"):
        raise InputError(
            f"a window of {window_ms} ms", where="batch_window_ms", hint="milliseconds above 0"
        )
    return Batches(size, window_ms / 1e3, clock)
