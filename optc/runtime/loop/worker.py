"""`Worker`: the one thread that calls the executable.

Engines keep thread pools that belong to the calling thread, so the executable is loaded, run and
closed here and nowhere else. Other threads leave messages in the inbox. A request that cannot be
taken fails alone; any other exception of this thread ends it, and reaches everyone who waits: a
message stays in the inbox or among those taken from it until it has been dealt with, and what it
asked for is then among the requests.

A signal handler or a finalizer may interrupt a caller anywhere and use the engine. So there is no
lock here: callers leave messages in a queue that may be entered again, and wait for latches.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from optc.errors import EngineError, OptcError
from optc.runtime.handle import Handle
from optc.runtime.loop.core import Core, Update
from optc.runtime.loop.latch import Latch
from optc.runtime.loop.places import Places
from optc.runtime.metrics.engine_health import EngineHealth, State
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.encoded_request import EncodedRequest
from optc.runtime.requests.request import Request
from optc.runtime.submitting.submission import Submission
from optc.runtime.threads.own_process import OwnProcess
from optc.system.logs.logger import logger
from optc.system.processes.process_memory import give_back_freed

if TYPE_CHECKING:
    from optc.runtime.engine_info import EngineInfo

#: Requests that are added between two steps, and that are cancelled; more wait for the next one, so
#: that others go on.
AT_ONCE, CANCELLED_AT_ONCE = 64, 512

_LOG = logger(__name__)


@dataclass(frozen=True)
class _Cancel:
    handle: Handle


@dataclass(frozen=True)
class _Stop:
    pass


@dataclass
class _Call:
    """Something to do between two steps, and what it raised.

    Attributes:
        function: Gets the core; gives one that takes its place, or None.
        alone: It waits until no request runs, and holds up those that came after it.
    """

    function: Callable[[Core], Core | None]
    alone: bool = False
    done: Latch = field(default_factory=Latch)
    error: OptcError | None = None


@dataclass(frozen=True)
class Sleep:
    """An engine that nobody asks is closed until somebody does.

    Attributes:
        after_s: Seconds without a request.
        reopen: From the core that was closed to one that takes its place; called on the thread.
    """

    after_s: float
    reopen: Callable[[Core], Core]


_Message = deque[Submission] | _Cancel | _Call | _Stop


class Worker:
    """Runs a `Core` on a thread of its own until it is closed or fails.

    Args:
        open_core: Loads the engine; called on the thread.
        max_waiting: Most requests that wait to be begun; None is no bound.
        sleep: When it is closed meanwhile; None is never. Adapters that are loaded keep it awake.

    Raises:
        BaseException: Whatever ``open_core`` raised.
    """

    def __init__(
        self,
        open_core: Callable[[], Core],
        max_waiting: int | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        self._process = OwnProcess()
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._taken: deque[_Message] = deque()  # from the inbox, not dealt with to the end
        self._ended: BaseException | None = None
        self._step_began_s: float | None = None  # None between two steps
        self._ready = Latch()
        self._gone = Latch()
        self._joined = False
        self._requests: dict[int, tuple[Handle, Request]] = {}
        self._of: dict[Handle, list[Request]] = {}
        self._cancelled: set[Handle] = set()  # before they were added
        self._places = Places(max_waiting)
        self._placed: set[int] = set()  # requests that hold a place
        self._core: Core | None = None
        self._sleep = sleep
        self._asleep = False
        #: What answers from now on; each handle keeps it from its request's first step on.
        self.serves: EngineInfo | None = None
        self._thread = threading.Thread(
            target=self._main, args=(open_core,), name="optc-engine", daemon=True
        )
        try:
            self._thread.start()
            self._ready.wait()
        except BaseException:  # interrupted: nobody will ever close it
            self._inbox.put(_Stop())
            raise
        if self._ended is not None:
            raise self._ended

    @property
    def state(self) -> State:
        """The state of the loop, for `Engine.health`."""
        if not self._process.here:
            return "forked"
        if self._ended is None:
            return "running"
        return "closed" if isinstance(self._ended, EngineError) else "failed"

    def check(self) -> None:
        """Do nothing while requests can be handed in.

        Raises:
            EngineError: The engine failed or is closed, or this is a fork of its process.
        """
        self._process.check()
        if self._ended is not None:
            raise EngineError("the engine is not running any more") from self._ended

    def submit(self, submissions: list[Submission]) -> None:
        """Hand requests in; the next step sees `AT_ONCE` of them, and each later one more.

        Raises:
            BusyError: Too many wait.
            EngineError: As of `check`.
        """
        self.check()
        self._places.take(len(submissions))
        self._put(deque(submissions))

    def cancel(self, handle: Handle) -> None:
        """Ask for the end of a request."""
        if self._process.here:
            self._inbox.put(_Cancel(handle))

    def call(self, function: Callable[[Core], None]) -> None:
        """Run ``function`` on the engine's thread between two steps, and wait for it.

        Raises:
            EngineError: As of `check`, or the function ended the engine.
            OptcError: What ``function`` raised.
        """
        self._wait_for(_Call(function))

    def change(self, function: Callable[[Core], Core]) -> None:
        """Let ``function`` put another core in the place of the present one, and wait for it.
        Requests that were handed in before end first, those that come after it wait.

        Raises:
            EngineError: As of `check`, or the function ended the engine.
            OptcError: What ``function`` raised; all is as before.
        """
        self._wait_for(_Call(function, alone=True))

    def _wait_for(self, call: _Call) -> None:
        self._put(call)
        call.done.wait()
        if call.error is not None:
            raise call.error

    def metrics(self) -> EngineMetrics:
        """Counters and queues of now."""
        return self._core.metrics() if self._core else EngineMetrics()

    def health(self) -> EngineHealth:
        """Its state of now. Waits for nothing: a step that hangs does not hold it up. Copies no
        histograms, as a server asks before each request."""
        core, began, ended = self._core, self._step_began_s, self._ended
        return EngineHealth(
            self.state,
            f"{type(ended).__name__}: {ended}" if self.state == "failed" else "",
            core.scheduler.num_running if core else 0,
            core.scheduler.num_waiting if core else 0,
            self._places.free,
            core.steps if core else 0,
            0.0 if began is None else time.perf_counter() - began,
            self._asleep,
        )

    def close(self) -> None:
        """Cancel what runs, release the engine and end the thread; again has no effect, and none
        in a fork of its process, where there is no thread."""
        if not self._process.here:
            return
        self._inbox.put(_Stop())
        if threading.get_ident() == self._thread.ident:
            return
        self._gone.wait()
        if not self._joined:  # who interrupts a join must not join: it holds a lock
            self._joined = True
            self._thread.join()

    def _put(self, message: deque[Submission] | _Call) -> None:
        self.check()
        self._inbox.put(message)
        if self._ended is not None:  # meanwhile, so that the thread may not have seen it
            self._refuse_inbox(self._ended)

    def _main(self, open_core: Callable[[], Core]) -> None:
        try:
            with _Failures(self._end):
                core: Core | None = open_core()
                self._core = core
                self._ready.set()
                while core is not None:
                    try:
                        ends = self._serve()
                    finally:
                        core = self._present
                        core.close()
                    core = None if ends else self._woken(core)
        finally:
            self._gone.set()

    def _woken(self, core: Core) -> Core | None:
        """The engine anew once it is needed; None where it is to end before."""
        assert self._sleep is not None
        self._asleep = True
        give_back_freed()
        while True:
            message = self._inbox.get()
            self._taken.append(message)
            if isinstance(message, _Stop):
                return None
            if not isinstance(message, _Cancel):
                self._core = self._sleep.reopen(core)
                self._asleep = False
                return self._core
            self._cancel(core, message.handle)
            self._taken.popleft()

    @property
    def _present(self) -> Core:
        assert self._core is not None  # once it was opened
        return self._core

    def _serve(self) -> bool:
        """Serve; True when the engine is to end, False when it may sleep."""
        while True:
            core = self._present
            if not self._take(core, wait=not core.has_work and not self._taken):
                return False
            if self._deal_with_some():
                core = self._present
                self._publish([core.cancel(r) for _, r in self._requests.values()])
                return True
            core = self._present
            if core.has_work:
                self._step_began_s = time.perf_counter()
                updates = core.step()
                self._step_began_s = None
                self._publish(updates)
                for request in core.scheduler.admitted:
                    self._leave_place(request)

    def _deal_with_some(self) -> bool:
        """Deal with messages in turns, with one request of each, so that few need not wait for
        many; True if the engine is to end."""
        left = 1.0
        while self._taken and left > 0:
            message = self._taken[0]
            if isinstance(message, _Stop):
                return True
            if _is_alone(message) and self._present.has_work:
                return self._deal_with_ends()
            left -= 1 / (AT_ONCE if isinstance(message, deque) else CANCELLED_AT_ONCE)
            self._deal_with(message, self._present)
            self._taken.popleft()
            if isinstance(message, deque) and message:
                self._put_back(message)
        return False

    def _put_back(self, message: deque[Submission]) -> None:
        """Let the rest of a message wait for its turn: before what came after it and must wait for
        the end of all that came before."""
        alone = (place for place, other in enumerate(self._taken) if _is_alone(other))
        self._taken.insert(next(alone, len(self._taken)), message)

    def _deal_with_ends(self) -> bool:
        """Deal with what needs not wait behind a call that does: with the ends of requests; True if
        the engine is to end."""
        for message in self._taken:
            if isinstance(message, _Cancel):
                self._cancel(self._present, message.handle)
        self._taken = deque(one for one in self._taken if not isinstance(one, _Cancel))
        return any(isinstance(message, _Stop) for message in self._taken)

    def _take(self, core: Core, *, wait: bool) -> bool:
        """Take all messages; if there are none and ``wait``, the next one. False where none comes
        for so long that the engine may sleep."""
        patience = None if self._sleep is None else self._sleep.after_s
        while wait:
            try:
                self._taken.append(self._inbox.get(timeout=patience))
                break
            except Empty:
                if not core.adapters.in_use:
                    return False
        try:
            while True:
                self._taken.append(self._inbox.get_nowait())
        except Empty:
            return True

    def _deal_with(self, message: deque[Submission] | _Cancel | _Call, core: Core) -> None:
        if isinstance(message, _Cancel):
            self._cancel(core, message.handle)
        elif isinstance(message, _Call):
            self._answer(message, core)
        elif message:
            self._add(core, message[0])
            message.popleft()  # not before: whoever ends the engine answers what is there

    def _answer(self, call: _Call, core: Core) -> None:
        """Do what a caller asked for; its errors are the caller's, not the engine's."""
        try:
            self._core = call.function(core) or core
        except OptcError as error:
            call.error = error
        call.done.set()

    def _cancel(self, core: Core, handle: Handle) -> None:
        requests = self._of.get(handle)
        if requests is not None:
            self._publish([core.cancel(request) for request in list(requests)])
        elif not handle.done:  # it comes later
            self._cancelled.add(handle)

    def _add(self, core: Core, submission: Submission) -> None:
        """Give a request to the core; one that it cannot take fails alone."""
        handle = submission.handle
        cancelled = handle in self._cancelled
        self._cancelled.discard(handle)  # whether or not the request can be added
        added: list[Request] = []
        try:
            for index in range(submission.completions):
                added.append(_add_completion(core, submission, index, added[0] if added else None))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this request alone
            _withdraw(core, submission, added)
            self._places.give_back()
            reason = f"{type(error).__name__}: {error}"
            handle.fail(error, f"the engine cannot take the request: {reason}")
            return
        handle.served_by = self.serves
        self._requests |= {request.id: (handle, request) for request in added}
        self._of[handle] = added
        self._placed.add(added[0].id)
        if cancelled:
            self._cancel(core, handle)

    def _leave_place(self, request: Request) -> None:
        """A request has begun or ended; of several completions the first one counts."""
        if request.id in self._placed:
            self._placed.remove(request.id)
            self._places.give_back()

    def _publish(self, updates: list[Update] | list[Update | None]) -> None:
        for update in updates:
            if update is None:
                continue
            handle, request = self._requests[update.request.id]
            handle.push(update.delta)
            if request.finish_reason is not None:
                scored = request.scored
                handle.finish(request.completion(), None if scored is None else scored.result())
                del self._requests[request.id]
                self._leave_place(request)
                if handle.done:
                    self._of.pop(handle, None)

    def _end(self, error: BaseException | None) -> None:
        """Let nobody wait for ever: not the opener, not the running, nor those whose message is
        still in the inbox or taken from it."""
        self._ended = ended = error or EngineError("the engine was closed")
        if error is not None and not isinstance(error, OptcError):
            _LOG.error("the engine failed", exc_info=error)
        self._ready.set()
        for handle, _ in self._requests.values():
            handle.fail(ended)
        for message in self._taken:
            _refuse(message, ended)
        self._refuse_inbox(ended)

    def _refuse_inbox(self, ended: BaseException) -> None:
        """Answer what nobody will deal with; any thread may."""
        try:
            while True:
                _refuse(self._inbox.get_nowait(), ended)
        except Empty:
            return


def _add_completion(
    core: Core, submission: Submission, index: int, leader: Request | None
) -> Request:
    request = submission.request
    encoded = request if isinstance(request, EncodedRequest) else None
    given = CompletionInput(
        submission.prompt,
        request.params,
        submission.seed,
        index,
        stream=submission.streams[index] if submission.streams else None,
        arrived_s=submission.arrived_s,
        salt=request.salt,
        adapter=submission.adapter,
        constraint=submission.constraints[index] if submission.constraints else None,
        priority=request.priority,
        deadline_s=submission.ends_s,
        scored=submission.scored(core.executable.spec.vocab_size) if not index else None,
        states=None if encoded is None else encoded.states,
        rules=None if encoded is None else encoded.rules,
    )
    return core.add(given, leader)


def _withdraw(core: Core, submission: Submission, added: list[Request]) -> None:
    """Take the completions of a request back that were added before one could not be."""
    for request in added:
        core.cancel(request)  # which releases its adapter
    if submission.adapter is not None:
        for _ in range(submission.completions - len(added)):
            core.adapters.release(submission.adapter)


def _is_alone(message: _Message) -> bool:
    return isinstance(message, _Call) and message.alone


def _refuse(message: _Message, ended: BaseException) -> None:
    """Answer a message that the engine did not live to deal with."""
    if isinstance(message, _Call) and not message.done.is_set:
        message.error = EngineError("the engine failed")
        message.error.__cause__ = ended
        message.done.set()
    elif isinstance(message, deque):
        for submission in message:
            submission.handle.fail(ended)


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
