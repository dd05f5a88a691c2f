"""`Deadlines`: which requests ran out of time."""

from __future__ import annotations

import heapq

from optc.runtime.requests.request import Request

#: Requests that end between two steps; more wait for the next one, so that others go on.
AT_ONCE = 256
#: Fewer are not worth a look at which of them have ended.
_FEW = 64


class Deadlines:
    """Requests with a deadline, the next one first.

    Requests that have ended are let go long before their deadline: whenever twice as many are
    held as went on at the last look (64 at least), all that have ended meanwhile. So a deadline of
    an hour does not keep an hour of requests.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._most = _FEW

    def add(self, request: Request) -> None:
        """Watch a request; without effect if it has no deadline."""
        if request.deadline_s is None:
            return
        if len(self._heap) >= self._most:
            self._heap = [entry for entry in self._heap if entry[2].finish_reason is None]
            heapq.heapify(self._heap)
            self._most = max(_FEW, 2 * len(self._heap))
        heapq.heappush(self._heap, (request.deadline_s, request.id, request))

    def __len__(self) -> int:
        """Requests that are held, those that have ended among them."""
        return len(self._heap)

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
