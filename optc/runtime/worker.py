"""`Worker`: the one thread that calls the executable.

Engines keep thread pools that belong to the calling thread, so the executable is loaded, run and
closed here and nowhere else. Other threads leave messages in the inbox. An exception of this
thread ends it, and reaches everyone who waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType

from optc.errors import OptcError
from optc.runtime.adapters.table import Adapter
from optc.runtime.core import Core, Update
from optc.runtime.detokenize import TextStream
from optc.runtime.executable import Int32
from optc.runtime.handle import EngineError, Handle
from optc.runtime.metrics import EngineMetrics
from optc.runtime.params import SamplingParams
from optc.runtime.request import Request
from optc.runtime.structured.constraint import Constraint
from optc.runtime.terms import Terms


@dataclass(frozen=True)
class Submission:
    """A valid request on its way to the engine.

    Attributes:
        handle: Where its output goes.
        prompt: [n] token ids.
        params: How to continue.
        seed: First half of its noise key.
        streams: Text of each of the n completions; empty without a tokenizer.
        arrived_s: When the caller handed it in.
        terms: How it is served.
        constraints: One for each of the n completions; empty if any output is allowed.
        adapter: Taken once for each of the n completions; None is none.
    """

    handle: Handle
    prompt: Int32
    params: SamplingParams
    seed: int
    streams: tuple[TextStream, ...]
    arrived_s: float
    terms: Terms
    constraints: tuple[Constraint, ...] = ()
    adapter: Adapter | None = None

    @property
    def ends_s(self) -> float | None:
        """When it ends at the latest, on the clock of ``arrived_s``."""
        seconds = self.terms.deadline_s
        return None if seconds is None else self.arrived_s + seconds


@dataclass(frozen=True)
class _Cancel:
    handle: Handle


@dataclass(frozen=True)
class _Stop:
    pass


@dataclass(frozen=True)
class _Call:
    """Something to do between two steps."""

    function: Callable[[Core], None]
    done: Future[None]


_Message = list[Submission] | _Cancel | _Call | _Stop


class Worker:
    """Runs a `Core` on a thread of its own until it is closed or fails.

    Args:
        open_core: Loads the engine; called on the thread.

    Raises:
        BaseException: Whatever ``open_core`` raised.
    """

    def __init__(self, open_core: Callable[[], Core]) -> None:
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._lock = threading.Lock()  # no message may enter after the end
        self._ended: BaseException | None = None
        self._ready = threading.Event()
        self._requests: dict[int, tuple[Handle, Request]] = {}
        self._core: Core | None = None
        self._thread = threading.Thread(
            target=self._main, args=(open_core,), name="optc-engine", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._ended is not None:
            raise self._ended

    def submit(self, submissions: list[Submission]) -> None:
        """Hand requests in; the next step sees all of them.

        Raises:
            EngineError: The engine failed or is closed.
        """
        with self._lock:
            if self._ended is not None:
                raise EngineError("the engine is not running any more") from self._ended
            self._inbox.put(submissions)

    def cancel(self, handle: Handle) -> None:
        """Ask for the end of a request."""
        self._inbox.put(_Cancel(handle))

    def call(self, function: Callable[[Core], None]) -> None:
        """Run ``function`` on the engine's thread between two steps, and wait for it.

        Raises:
            EngineError: The engine failed or is closed.
            OptcError: What ``function`` raised.
        """
        done: Future[None] = Future()
        with self._lock:
            if self._ended is not None:
                raise EngineError("the engine is not running any more") from self._ended
            self._inbox.put(_Call(function, done))
        done.result()

    def metrics(self) -> EngineMetrics:
        """Counters and queues of now."""
        return self._core.metrics() if self._core else EngineMetrics()

    def close(self) -> None:
        """Cancel what runs, release the engine and end the thread; again has no effect."""
        self._inbox.put(_Stop())
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self, open_core: Callable[[], Core]) -> None:
        with _Failures(self._end):
            core = self._core = open_core()
            self._ready.set()
            try:
                self._serve(core)
            finally:
                core.close()

    def _serve(self, core: Core) -> None:
        while True:
            for message in self._messages(core.wait_s()):
                if isinstance(message, _Stop):
                    self._publish([core.cancel(r) for _, r in self._requests.values()])
                    return
                if isinstance(message, _Cancel):
                    mine = [r for h, r in self._requests.values() if h is message.handle]
                    self._publish([core.cancel(request) for request in mine])
                elif isinstance(message, _Call):
                    _answer(message, core)
                else:
                    self._add(core, message)
            if core.has_work:
                self._publish(core.step())

    def _messages(self, wait_s: float | None) -> list[_Message]:
        """All messages; if there are none, the next one within ``wait_s`` (None: for ever)."""
        messages: list[_Message] = []
        try:
            if wait_s != 0:
                messages.append(self._inbox.get(timeout=wait_s))
            while True:
                messages.append(self._inbox.get_nowait())
        except Empty:
            return messages

    def _add(self, core: Core, submissions: list[Submission]) -> None:
        for submission in submissions:
            leader: Request | None = None
            for index in range(submission.params.completions):
                request = core.add(
                    submission.prompt,
                    submission.params,
                    seed=submission.seed,
                    index=index,
                    stream=submission.streams[index] if submission.streams else None,
                    arrived_s=submission.arrived_s,
                    salt=submission.terms.salt,
                    adapter=submission.adapter,
                    leader=leader,
                    constraint=submission.constraints[index] if submission.constraints else None,
                    priority=submission.terms.priority,
                    deadline_s=submission.ends_s,
                )
                leader = leader or request
                self._requests[request.id] = submission.handle, request

    def _publish(self, updates: list[Update] | list[Update | None]) -> None:
        for update in updates:
            if update is None:
                continue
            handle, request = self._requests[update.request.id]
            handle.push(update.delta)
            if request.finish_reason is not None:
                del self._requests[request.id]
                handle.finish(request.completion())

    def _end(self, error: BaseException | None) -> None:
        """Let nobody wait for ever: not the opener, the running or those still in the inbox."""
        with self._lock:
            self._ended = error or EngineError("the engine was closed")
        self._ready.set()
        left = [handle for handle, _ in self._requests.values()]
        for message in self._messages(wait_s=0):
            if isinstance(message, _Call):
                message.done.set_exception(self._ended)
            if isinstance(message, list):
                left += [submission.handle for submission in message]
        for handle in left:
            handle.fail(self._ended)


def _answer(call: _Call, core: Core) -> None:
    """Do what a caller asked for; its errors are the caller's, not the engine's."""
    try:
        call.function(core)
    except OptcError as error:
        call.done.set_exception(error)
    else:
        call.done.set_result(None)


class _Failures:
    """Gives the exception that ends a block, or None, to ``end`` and stops it there."""

    def __init__(self, end: Callable[[BaseException | None], None]) -> None:
        self._end = end

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._end(error)
        return True
