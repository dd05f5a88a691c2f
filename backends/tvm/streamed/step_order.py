"""The order in which steps use weights, and how far ahead of the kernels they are asked for.

What one step used is what the next one will use, but for experts, which the router chooses anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

#: Weights that one kernel call reads, by their places among the step's arguments.
Uses = tuple[int, ...]


class StepOrder:
    """Learns the order from each step and goes ahead of the next.

    Args:
        is_mixture: True if a call reads experts.
        window: Most bytes that are asked for before the calls that read them.
    """

    def __init__(self, is_mixture: Callable[[Uses], bool], window: int) -> None:
        self._is_mixture, self._window = is_mixture, window
        self._last: list[Uses] = []
        self._now: list[Uses] = []
        self._next = 0  # the first call of the last step's order that nothing was asked for
        self._asked: deque[tuple[int, int]] = deque()  # calls, and bytes that are not yet read

    def begin_step(self) -> None:
        """A step begins. What was asked for behind the end of the last one is for its calls."""
        if not self._now:
            return
        same = self._now == self._last
        self._next = max(0, self._next - len(self._last)) if same else 0
        ahead = [(call - len(self._last), size) for call, size in self._asked]
        self._asked = deque((call, size) for call, size in ahead if same and call >= 0)
        self._last, self._now = self._now, []

    def use(self, uses: Uses) -> None:
        """A call of the step is about to run."""
        self._now.append(uses)
        while self._asked and self._asked[0][0] < len(self._now):
            self._asked.popleft()

    def go_ahead(self, chosen: bool, ask: Callable[[Uses, int], int]) -> None:
        """Ask for what the next calls will read, and behind the step's end for the next step's.

        Nothing is asked for if the step has left the order of the one before.

        Args:
            chosen: The last call reads experts, and it is known which.
            ask: Given what a call reads and for how many bytes there is room, asks for that and
                says for how many bytes.
        """
        place, length = len(self._now), len(self._last)
        if not 0 < place <= length or self._last[place - 1] != self._now[-1]:
            return
        self._next = max(self._next, place)
        room = self._window - sum(size for _, size in self._asked)
        while room > 0 and self._next < place + length:
            uses = self._last[self._next % length]
            if self._is_mixture(uses) and not (chosen and self._same_mixture(place)):
                return  # the router has not run
            size = ask(uses, room)
            if size:
                self._asked.append((self._next, size))
            room -= size
            self._next += 1

    def _same_mixture(self, place: int) -> bool:
        """True if no other weights lie between the last call and the next to be asked for."""
        return self._next < len(self._last) and all(
            self._is_mixture(uses) for uses in self._last[place : self._next]
        )
