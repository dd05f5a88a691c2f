"""`Waker`: lets a coroutine wait for another thread, without a thread of its own."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref


class Waker:
    """Wakes one coroutine of an event loop. A loop whose coroutine does not wait hears nothing, and
    one that is slow is told once, however often there are news.

    Args:
        loop: The coroutine's, which runs.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._bell = _bell_of(loop)
        self._waiting: Future[None] | None = None
        self._listens = False

    def notify(self) -> bool:
        """Wake it if it waits; any thread may. False if its loop is closed, so that nobody waits
        any more."""
        if not self._listens:
            return True
        try:
            self._listens = False
            return self._bell.ring(self)
        except BaseException:  # an interrupt: the next one wakes it
            self._listens = True
            raise

    async def wait(self, news: Callable[[], bool]) -> None:
        """Return once it has been notified, or where there are news already.

        Args:
            news: There are some: whoever notifies lets this be true before.
        """
        self._listens = True  # before looking: what comes from now on calls
        if news():
            return
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self) -> None:
        """Let the coroutine go on; the loop calls it."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class _Bell:
    """Calls an event loop from other threads: what they tell it before it gets to them is one call
    of the loop, as of a step of the engine that wakes a hundred streams.

    Args:
        loop: That is called.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = ref(loop)  # which is the key under which this is kept
        self._wakers: deque[Waker] = deque()
        self._called = False

    def ring(self, waker: Waker) -> bool:
        """Have the loop wake somebody. False if it is closed."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._wakers.clear()
            return False
        self._wakers.append(waker)
        if not self._called:
            try:
                self._called = True
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # it was closed meanwhile
                self._wakers.clear()
                return False
            except BaseException:  # an interrupt: the next one calls
                self._called = False
                raise
        return True

    def _answer(self) -> None:
        self._called = False  # before looking: who comes from now on calls again
        while self._wakers:
            self._wakers.popleft().wake()


_BELLS: WeakKeyDictionary[AbstractEventLoop, _Bell] = WeakKeyDictionary()


def _bell_of(loop: AbstractEventLoop) -> _Bell:
    """The one of a loop; the loop's own thread asks."""
    found = _BELLS.get(loop)
    if found is None:
        found = _BELLS[loop] = _Bell(loop)
    return found
