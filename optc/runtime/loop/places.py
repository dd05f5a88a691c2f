"""`Places`: how many requests may wait."""

from __future__ import annotations

from collections import deque

from optc.errors import BusyError


class Places:
    """Places for requests that wait to be begun. Any thread may take some, and a signal handler
    that interrupts it: there is no lock.

    Args:
        most: How many there are; None is no bound.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._free: deque[None] = deque([None] * (most or 0))

    @property
    def free(self) -> int | None:
        """Number of places left; None is no bound."""
        return None if self._most is None else len(self._free)

    def take(self, count: int) -> None:
        """Take places, all or none.

        Raises:
            BusyError: There are too few.
        """
        if self._most is None:
            return
        taken = 0
        try:
            while taken < count:
                self._free.pop()
                taken += 1
        except IndexError:
            self._free.extend([None] * taken)
            raise BusyError(
                f"more than {self._most} requests would wait",
                where="max_waiting",
                hint="ask again later, or load with a larger max_waiting",
            ) from None

    def give_back(self) -> None:
        """A request has begun, or ended before."""
        if self._most is not None:
            self._free.append(None)
