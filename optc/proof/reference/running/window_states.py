"""Hidden states of windows, computed in groups as they are asked for.

An engine that is compared window by window may be found hopeless after a few of them: what the
reference would have computed for the others is then saved.
"""

from __future__ import annotations

from collections.abc import Callable

from optc.runtime.executable.executable import Float32, Int32

#: Hidden states [w * S, D] of windows of tokens [w, S].
Run = Callable[[Int32], Float32]


class WindowStates:
    """Inputs of the head for windows of tokens.

    Args:
        tokens: [W, S], windows at positions 0 … S - 1.
        room: [W, S, D], where the states go.
        run: Computes them.
        batch: Windows that run at once: groups are multiples of it.
        growth: How many times more windows are computed at each turn. A turn reads the weights of
            a model that is not kept in memory.
    """

    def __init__(self, tokens: Int32, room: Float32, run: Run, batch: int, growth: int) -> None:
        self.tokens = tokens.copy()
        self._room = room
        self._run = run
        self._batch = batch
        self._growth = growth
        self._known = 0

    def window(self, index: int) -> Float32:
        """[S, D] of a window; those before it are computed too."""
        while self._known <= index:
            self._more(min(self._batch + (self._growth - 1) * self._known, len(self.tokens)))
        return self._room[index]

    def all(self) -> Float32:
        """[W * S, D] of every window."""
        self._more(len(self.tokens))
        return self._room.reshape(-1, self._room.shape[-1])

    def take(self, other: WindowStates) -> None:
        """Take another one's states of the same windows, up to the first that it does not know."""
        known = {ids.tobytes(): at for at, ids in enumerate(other.tokens[: other._known])}
        for index in range(self._known, len(self.tokens)):
            place = known.get(self.tokens[index].tobytes())
            if place is None:
                return
            self._room[index] = other._room[place]
            self._known = index + 1

    def _more(self, count: int) -> None:
        """Compute ``count`` windows after those that are known, or what there is of them."""
        group = slice(self._known, min(self._known + count, len(self.tokens)))
        if group.start < group.stop:
            found = self._run(self.tokens[group])
            self._room[group] = found.reshape(-1, *self._room.shape[1:])
            self._known = group.stop
