"""`Pace`: how often streams send, so that sending leaves the machine to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from optc.runtime.threads.waking import Waker
from optc.system.hardware.target import usable_threads

#: Share of the machine that chunks may take, and of a core, on which their loop runs.
_OF_MACHINE, _OF_CORE = 0.05, 0.5
#: Seconds that a token waits for others, at most: less than a screen shows.
_MOST_S = 0.02
#: Seconds of a core that a chunk takes (`benchmarks.serving.http_cost`, Zen 4). What a server
#: measured of itself would depend on the pauses that follow from it: what has paused costs more.
_COST_S = 24e-6
#: Tokens that come so many times slower than a stream may send need not wait.
_SLOW = 2.0


class Pace:
    """The pause between two chunks of a stream.

    Each step of the engine is a chunk of each stream as long as writing all of them takes a small
    share of the machine. Where a small model takes hundreds of steps a second for many streams, the
    tokens of a pause are one chunk. Streams pause together, so that one timer is for all.

    Args:
        fixed_s: The pause, whatever it costs; None lets the cost decide.
        cores: Of the machine; None are those that this process may use.
    """

    def __init__(self, fixed_s: float | None = None, cores: int | None = None) -> None:
        self._fixed_s = fixed_s
        self._share = min(_OF_CORE, _OF_MACHINE * (cores or usable_threads()))
        self._streams = 0
        self._resting: list[Waker] = []

    @property
    def pause_s(self) -> float:
        """Seconds between two chunks of a stream, at least."""
        if self._fixed_s is not None:
            return self._fixed_s
        return min(_MOST_S, self._streams * _COST_S / self._share)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Around a stream that sends."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def rest(self, gap_s: float, waker: Waker, ended: Callable[[], bool]) -> None:
        """Wait after a chunk as long as the next one should not be sent, or until the text has
        ended: a client that asks again should not be kept from asking.

        Args:
            gap_s: Seconds between this chunk of the stream and the one before it.
            waker: Notified when the text ends.
            ended: It has.
        """
        pause_s = self.pause_s
        if not pause_s or (self._fixed_s is None and gap_s > _SLOW * pause_s):
            return
        self._resting.append(waker)
        if len(self._resting) == 1:
            asyncio.get_running_loop().call_later(pause_s, self._go_on)
        await waker.wait(ended)

    def _go_on(self) -> None:
        """Let all streams that rest send."""
        resting, self._resting = self._resting, []
        for one in resting:
            one.wake()
