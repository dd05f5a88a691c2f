"""`WorkQueue`: runs the calls of one engine of named tensors, one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from optc.runtime.metrics.quantiles import Quantiles
from optc.serve.api_errors import later

T = TypeVar("T")


class WorkQueue:
    """Calls of an engine in the order of their arrival: each uses all threads of the engine.

    Args:
        places: Calls that may wait; more are turned away. None is any number.

    Attributes:
        running: Calls that are computed now: 0 or 1.
        waiting: Calls that wait for their turn.
        closed: Calls that have not begun are turned away.
        times: Seconds from the arrival of each call to its end.
    """

    def __init__(self, places: int | None = None) -> None:
        self._places = places
        self._turn = asyncio.Lock()
        self.running = 0
        self.waiting = 0
        self.closed = False
        self.times = Quantiles()

    @property
    def has_room(self) -> bool:
        """One more call may wait."""
        return self._places is None or self.waiting < self._places

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which runs on a thread. Who is cancelled while it waits takes no
        turn; what has begun goes on.

        Raises:
            APIError: Too many wait, or the queue is closed.
        """
        if not self.has_room:
            raise later(429, "too many requests wait; ask again later", "rate_limit_exceeded")
        began_s = time.perf_counter()
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        result = await asyncio.shield(asyncio.ensure_future(self._computed(work)))
        self.times.add(time.perf_counter() - began_s)
        return result

    async def _computed(self, work: Callable[[], T]) -> T:
        self.running = 1
        try:
            if self.closed:
                raise later(503, "the server is shutting down")
            return await asyncio.to_thread(work)
        finally:
            self.running = 0
            self._turn.release()
