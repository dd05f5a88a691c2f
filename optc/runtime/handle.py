"""`Handle`: a caller's end of one submitted request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from optc.errors import EngineError
from optc.runtime.loop.latch import Latch
from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
from optc.runtime.threads.own_process import OwnProcess

if TYPE_CHECKING:
    from optc.runtime.engine_info import EngineInfo
    from optc.runtime.parsing.apart import Apart
    from optc.runtime.threads.waking import Waker


class Handle:
    """One request in the engine. Iterate it to stream, or wait for its `result`; in a coroutine
    use ``async for`` and ``await``.

    A caller who is slow holds nobody up: what was not fetched yet waits in the handle, at most one
    delta for each token and completion.

    The engine's thread calls the methods ``push``, ``finish`` and ``fail``; all others are for
    the caller, from any thread, and from signal handlers and finalizers too.

    Args:
        prompt_token_ids: The prompt as the model sees it.
        n: Completions that are asked for.
        cancel: Tells the engine to end the request.
        apart: Tells what is thought from what is answered; None where all is answer. It is asked
            where results are taken: on the caller's threads, not the engine's.
    """

    def __init__(
        self,
        prompt_token_ids: tuple[int, ...],
        n: int,
        cancel: Callable[[Handle], None],
        apart: Apart | None = None,
    ) -> None:
        self.prompt_token_ids = prompt_token_ids
        self._n = n
        self._cancel = cancel
        self._apart = apart
        self._process = OwnProcess()
        self._deltas: SimpleQueue[Delta | None] = SimpleQueue()
        self._completions: list[Completion] = []
        self._scored: PromptLogprobs | None = None
        self._failure: tuple[str, BaseException] | None = None
        self._done = Latch()
        # Of those who read deltas, and of those who wait for the end; by their id: a lock could not
        # be entered again.
        self._wakers: dict[int, Waker] = {}
        self._ends: dict[int, Waker] = {}
        self._callbacks: list[Callable[[Handle], object]] = []
        self._engine: object = None
        #: The engine that answers, once the request has come to it (`Engine.swap`).
        self.served_by: EngineInfo | None = None
        #: Gets this handle and its result before anybody learns that it is there; raises nothing.
        #: Not called where the request failed.
        self.before_end: Callable[[Handle, RequestOutput], object] | None = None

    @property
    def done(self) -> bool:
        """The request has ended, in whatever way."""
        return self._done.is_set

    def cancel(self) -> None:
        """End the request soon; what it has so far is its result. No effect when it has ended."""
        self._cancel(self)

    def add_done_callback(self, call: Callable[[Handle], object]) -> None:
        """Call something once the request has ended, in whatever way: on the engine's thread, which
        it must not hold up, or here if the request has ended already.

        Args:
            call: Gets this handle, whose `result` is there; raises nothing.
        """
        self._callbacks.append(call)
        if self.done:
            self._call_back()

    def __iter__(self) -> Iterator[Delta]:
        """Deltas as they come, those of n completions interleaved; each is given once.

        Raises:
            EngineError: The engine failed, or this is a fork of its process.
        """
        self._process.check()
        while (delta := self._deltas.get()) is not None:
            yield self._shown(delta)
        self._end_deltas()  # so that a second iteration ends as well
        self._raise_failure()

    def waiting(self) -> list[Delta]:
        """Deltas that have come and that nobody fetched, without waiting for more: for readers who
        take several at once. An iteration goes on behind them."""
        found: list[Delta] = []
        try:
            while not self._deltas.empty():
                delta = self._deltas.get_nowait()
                if delta is None:
                    self._end_deltas()  # for the iteration
                    break
                found.append(self._shown(delta))
        except Empty:  # another reader was faster
            pass
        return found

    def result(self, timeout_s: float | None = None) -> RequestOutput:
        """The finished request; waits for it.

        Raises:
            TimeoutError: It has not ended after ``timeout_s``; it goes on.
            EngineError: The engine failed, or this is a fork of its process.
        """
        self._process.check()
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the request has not ended after {timeout_s} s")
        self._raise_failure()
        found = self._output()
        if self._apart is None:
            return found
        return replace(found, completions=tuple(map(self._apart.completion, found.completions)))

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """As `__iter__`, in a coroutine of any event loop. A task that is cancelled while it waits
        for a delta cancels the request; one that only leaves the loop does not.

        Raises:
            EngineError: The engine failed, or this is a fork of its process.
        """
        self._process.check()
        waker = self._new_waker(self._wakers)
        try:
            while True:
                try:
                    delta = self._deltas.get_nowait()
                except Empty:
                    await self._or_cancel(waker, self._some)
                    continue
                if delta is None:
                    break
                yield self._shown(delta)
        finally:
            self._wakers.pop(id(waker), None)
        self._end_deltas()
        self._raise_failure()

    def __await__(self) -> Generator[None, None, RequestOutput]:
        """The finished request, as `result` gives it. A task that is cancelled while it waits
        cancels the request.

        Raises:
            EngineError: The engine failed, or this is a fork of its process.
        """
        return self._wait().__await__()

    def __repr__(self) -> str:
        state = "done" if self.done else "running"
        return f"<optc.Handle of {len(self.prompt_token_ids)} prompt tokens, {state}>"

    @contextmanager
    def end_waker(self) -> Iterator[Waker]:
        """A waker that is notified when the request ends, in whatever way: for a coroutine that
        waits for something else, too. Leaving does not cancel the request."""
        waker = self._new_waker(self._ends)
        try:
            yield waker
        finally:
            self._ends.pop(id(waker), None)

    def keep(self, engine: object) -> None:
        """Keep the engine until the request has ended: its owner may drop it before."""
        self._engine = engine
        if self.done:  # meanwhile
            self._engine = None

    def push(self, delta: Delta) -> None:
        """Add what a step gave."""
        self._deltas.put(delta)
        _notify(self._wakers)

    def finish(self, completion: Completion, scored: PromptLogprobs | None = None) -> None:
        """Add a finished completion, and what it knows of the prompt; the last one ends the
        request."""
        self._scored = self._scored or scored
        self._completions.append(completion)
        if len(self._completions) == self._n:
            if self.before_end is not None:
                self.before_end(self, self._output())
            self._end()

    def fail(self, error: BaseException, message: str = "the engine failed") -> None:
        """End the request with an `EngineError` of this message and cause, unless it has ended."""
        if not self.done:
            self._failure = message, error
            self._end()

    def _shown(self, delta: Delta) -> Delta:
        return delta if self._apart is None else self._apart.delta(delta)

    def _output(self) -> RequestOutput:
        ordered = sorted(self._completions, key=lambda completion: completion.index)
        return RequestOutput(self.prompt_token_ids, tuple(ordered), self._scored)

    def _end(self) -> None:
        self._done.set()
        self._call_back()
        self._end_deltas()
        self._engine = None  # last: without its last name it closes

    def _call_back(self) -> None:
        """Each callback is taken out by one thread, and called by that one."""
        while self._callbacks:
            try:
                call = self._callbacks.pop(0)
            except IndexError:  # another thread took the last one
                return
            call(self)

    def _end_deltas(self) -> None:
        self._deltas.put(None)
        _notify(self._wakers)
        _notify(self._ends)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            message, cause = self._failure
            raise EngineError(message) from cause

    async def _wait(self) -> RequestOutput:
        self._process.check()
        waker = self._new_waker(self._ends)
        try:
            while not self.done:
                await self._or_cancel(waker, lambda: self.done)
        finally:
            self._ends.pop(id(waker), None)
        return self.result()

    def _some(self) -> bool:
        """Deltas have come, or their end."""
        return not self._deltas.empty()

    async def _or_cancel(self, waker: Waker, news: Callable[[], bool]) -> None:
        """Wait for news; cancel the request if nobody waits for it any more."""
        try:
            await waker.wait(news)
        except BaseException:
            self.cancel()
            raise

    def _new_waker(self, kept: dict[int, Waker]) -> Waker:
        from asyncio import get_running_loop  # a program with coroutines has it already

        from optc.runtime.threads.waking import Waker

        waker = Waker(get_running_loop())
        kept[id(waker)] = waker
        return waker


def _notify(wakers: dict[int, Waker]) -> None:
    for key, waker in wakers.copy().items():
        if not waker.notify():
            wakers.pop(key, None)
