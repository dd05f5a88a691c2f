"""`Waker`: lets a coroutine wait for another thread, without a thread of its own."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Event


class Waker:
    """Wakes one coroutine of an event loop. However often it is notified before the loop gets to
    it, the loop gets one callback, so that a slow one is not flooded.

    Args:
        loop: The coroutine's, which runs.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._event = Event()
        self._called = False

    def notify(self) -> bool:
        """Wake it; any thread may. False if its loop is closed, so that nobody waits any more."""
        if self._called:
            return True
        self._called = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def wait(self) -> None:
        """Return once it has been notified since the last time."""
        await self._event.wait()
        self._event.clear()

    def _wake(self) -> None:
        self._called = False  # before the coroutine looks: what comes from now on calls again
        self._event.set()
