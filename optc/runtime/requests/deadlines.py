"""`Deadlines`: which requests ran out of time."""

from __future__ import annotations

import heapq

from optc.runtime.requests.request import Request

#: Requests that end between two steps; more wait for the next one, so that others go on.
AT_ONCE = 256


class Deadlines:
    """Requests with a deadline, the next one first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []

    def add(self, request: Request) -> None:
        """Watch a request; without effect if it has no deadline."""
        if request.deadline_s is not None:
            heapq.heappush(self._heap, (request.deadline_s, request.id, request))

    def __bool__(self) -> bool:
        return bool(self._heap)

    def expired(self, now: float) -> list[Request]:
        """Take out those whose deadline is ``now`` or before and that have not ended; `AT_ONCE` of
        them at most, the earliest first."""
        late: list[Request] = []
        while self._heap and self._heap[0][0] <= now and len(late) < AT_ONCE:
            request = heapq.heappop(self._heap)[2]
            if request.finish_reason is None:
                late.append(request)
        return late
