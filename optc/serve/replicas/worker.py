"""`ReplicatedWorker`: computes the requests of an engine by replicas."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from optc.errors import BusyError, EngineError, InputError, OptcError, ReplicaLostError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.handle import Handle
from optc.runtime.loop.works import Works
from optc.runtime.metrics.engine_health import EngineHealth, State
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.latencies import Latencies
from optc.runtime.outputs import Completion
from optc.runtime.submitting.submission import Submission
from optc.runtime.threads.own_process import OwnProcess
from optc.serve.replicas.block_hashes import block_hashes
from optc.serve.replicas.call import Call
from optc.serve.replicas.directory import Directory, Ticket
from optc.serve.replicas.totals import Totals
from optc.serve.replicas.wire import Begun, Described, Ended, Message, Replicas, Some
from optc.system.logs.logger import logger

if TYPE_CHECKING:
    from optc.runtime.loop.core import Core

T = TypeVar("T")
_LOG = logger(__name__)
#: Seconds between two rounds of reports.
REPORT_S = 0.5
#: Completions whose latencies count.
_WHOLE = ("stop", "length")


class ReplicatedWorker:
    """Sends each request to a replica (`Directory` says which), and gives what comes back to its
    handle. What calls it is any thread; what it does is done on a thread of its own, by an event
    loop.

    Args:
        replicas: Reaches them. They are closed with it.
        max_waiting: Requests that may wait for each replica; None is no bound.
        report_s: Seconds between two rounds of reports.

    Raises:
        OptcError: No replica says what its engine is.

    Attributes:
        described: The engine of each.
    """

    def __init__(
        self, replicas: Replicas, max_waiting: int | None = None, report_s: float = REPORT_S
    ) -> None:
        self._process = OwnProcess()
        self._replicas = replicas
        self._max_waiting = max_waiting
        self._report_s = report_s
        self._totals = Totals()
        self._latencies = Latencies()
        self._sent_since = 0  # requests, since the latest reports
        self._calls: dict[Handle, asyncio.Task[None]] = {}
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="optc-replicas", daemon=True)
        self._thread.start()
        try:
            self.described: Described = self._wait(replicas.describe())
            self._directory = Directory(self.described.plan.block_size)
            self._adapters = _table(self.described)
            self._wait(self._hear())
        except BaseException:
            self._stop()
            replicas.close()
            raise
        self._reporting = asyncio.run_coroutine_threadsafe(self._report(), self._loop)

    @property
    def works(self) -> Works:
        """It, and the sizes of a replica's engine."""
        return Works(self, self.described.spec, self.described.plan, self._adapters)

    @property
    def state(self) -> State:
        """The state of now: replicas that fail are replaced."""
        if not self._process.here:
            return "forked"
        return "closed" if self._closed else "running"

    def check(self) -> None:
        """Do nothing while requests can be handed in.

        Raises:
            EngineError: It is closed, or this is a fork of its process.
        """
        self._process.check()
        if self._closed:
            raise EngineError("the engine is not running any more")

    def submit(self, submissions: list[Submission]) -> None:
        """Hand requests in.

        Raises:
            BusyError: Too many wait, or no replica is there.
            EngineError: As of `check`.
        """
        self.check()
        places = self._places
        if places is not None and places < len(submissions):
            raise BusyError(
                "more requests would wait than may",
                where="max_waiting",
                hint="ask again later, with more replicas, or a larger max_waiting",
            )
        for one in submissions:
            adapter = "" if one.adapter is None else one.adapter.generation
            size = self.described.plan.block_size
            hashes = block_hashes(f"{adapter}\0{one.request.salt}", one.prompt, size)
            self._sent_since += 1
            try:
                self._loop.call_soon_threadsafe(self._begin, Call(one, hashes))
            except RuntimeError as error:  # it has closed meanwhile
                one.handle.fail(error)

    def cancel(self, handle: Handle) -> None:
        """Ask for the end of a request."""
        if self._process.here and not self._closed:
            with suppress(RuntimeError):  # it closes meanwhile
                self._loop.call_soon_threadsafe(self._cancel, handle)

    def call(self, function: Callable[[Core], None]) -> None:
        """Refuse: there is no engine here.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "an engine of replicas cannot be changed",
            where="replicas",
            hint="give its adapters when it is started",
        )

    def metrics(self) -> EngineMetrics:
        """Counters as of the latest reports; latencies are measured here."""
        return self._totals.metrics(self._latencies.copy())

    def health(self) -> EngineHealth:
        """The state as of the latest reports."""
        now = self._totals.metrics(self._latencies)
        return EngineHealth(self.state, "", now.running, now.waiting, self._places, now.steps)

    def close(self) -> None:
        """End what runs, then the replicas; again has no effect."""
        if self._closed or not self._process.here:
            return
        self._closed = True
        with suppress(RuntimeError):
            self._wait(self._end())
        self._stop()
        self._replicas.close()

    @property
    def _places(self) -> int | None:
        """Requests that may be handed in now."""
        reports = self._totals.reports.values()
        if not reports:
            return 0
        if self._max_waiting is None:
            return None
        free = [one.health.places for one in reports]
        most = sum(self._max_waiting if one is None else one for one in free)
        return max(0, most - self._sent_since)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(asyncio.sleep(0))  # what was handed in meanwhile fails
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.get_ident() != self._thread.ident:
            self._thread.join()

    async def _end(self) -> None:
        """Let nobody wait for ever."""
        self._reporting.cancel()
        tasks = list(self._calls.values())
        for handle in list(self._calls):
            handle.fail(_closed())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._report_s)
            try:
                await self._hear()
            except (OptcError, TimeoutError) as error:
                _LOG.warning("no reports of replicas: %s", error)

    async def _hear(self) -> None:
        self._sent_since = 0
        reports = await self._replicas.reports(self._directory.numbers)
        alive = [one for one in reports if one.health.alive]
        for one in alive:
            self._directory.heard(one.replica, one.changes)
        self._directory.keep([one.replica for one in alive])
        self._totals.heard(alive)

    def _begin(self, call: Call) -> None:
        handle = call.submission.handle
        if self._closed:
            handle.fail(_closed())
            return
        self._calls[handle] = asyncio.ensure_future(self._serve(call))

    def _cancel(self, handle: Handle) -> None:
        if (task := self._calls.get(handle)) is not None:
            self._loop.call_soon(task.cancel)  # not before it has begun

    async def _serve(self, call: Call) -> None:
        """One request from its beginning to its end."""
        handle = call.submission.handle
        order = self._directory.order(call.hashes, call.tokens)
        best = order[0] if order else ""
        ticket = self._directory.send(best, call.hashes, call.tokens)
        try:
            self._observe(await self._answer(call, order, ticket))
        except asyncio.CancelledError:
            if not handle.done:
                call.cancel()
        except ReplicaLostError as error:
            _LOG.warning("replica %s is gone", ticket.replica)
            self._directory.lose(ticket.replica)
            handle.fail(error, error.message)
        except OptcError as error:
            handle.fail(error, error.message)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the answer
            _LOG.error("a request to a replica failed", exc_info=error)
            handle.fail(error)
        finally:
            self._directory.ended(ticket)
            self._calls.pop(handle, None)
            if call.submission.adapter is not None:
                for _ in range(call.submission.completions):
                    self._adapters.release(call.submission.adapter)

    async def _answer(self, call: Call, order: list[str], ticket: Ticket) -> list[Completion]:
        """All of an answer.

        Raises:
            OptcError: The request failed, or the replica is gone.
        """
        messages: AsyncGenerator[Message, None] = self._replicas.ask(call.request, order)
        async with aclosing(messages):
            async for one in messages:
                if isinstance(one, Begun):
                    self._directory.move(ticket, one.replica)
                elif isinstance(one, Some):
                    self._directory.began(ticket)
                    call.add(one.deltas)
                elif isinstance(one, Ended):
                    return call.finish(one)
                else:
                    raise one.error
        raise ReplicaLostError("the replica ended before its answer did")

    def _observe(self, completions: list[Completion]) -> None:
        for one in completions:
            if one.finish_reason in _WHOLE:
                self._latencies.observe(one.metrics)


def _table(described: Described) -> AdapterTable:
    """The adapters, with the generations that they have in each replica."""
    table = AdapterTable(described.spec.adapters)
    for name in described.adapters:
        table.publish(table.reserve(name))
    return table


def _closed() -> EngineError:
    return EngineError("the engine was closed")
