"""`Replica`: one engine, as a server that has several asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from optc.errors import EngineError, OptcError, ReplicaLostError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.kv_events.events import StepLog
from optc.runtime.metrics.latencies import Latencies
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.outputs import RequestOutput
from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.metrics import kv_use
from optc.serve.replicas.block_changes import BlockChanges
from optc.serve.replicas.wire import Begun, Described, Ended, Failed, Message, Report, Some

#: Loads an engine that tells a log of its prefix cache.
Open = Callable[[StepLog], Engine]
#: Seconds between two messages of an answer, at least: each costs most of a millisecond on its way,
#: and small models take less than that for a token.
_PAUSE_S = 0.01


class Replica:
    """An engine behind messages. Its methods are called from one event loop.

    Args:
        name: Of the replica, for the server.
        open_engine: Loads its engine.
        adapters: Folders of its adapters by name, loaded in this order.

    Raises:
        OptcError: The engine or an adapter cannot be loaded.
    """

    def __init__(self, name: str, open_engine: Open, adapters: Mapping[str, Path]) -> None:
        self._name = name
        self._changes = BlockChanges()
        self._engine = open_engine(self._changes)
        self._adapters = tuple(adapters)
        for one, folder in adapters.items():
            self._engine.load_adapter(one, folder)

    def describe(self) -> Described:
        """The engine."""
        engine = self._engine
        return Described(engine.spec, engine.kv_plan, engine.info, self._adapters)

    def report(self, numbers: Mapping[str, int]) -> Report:
        """The state of now, and the changes of its cache after the number of this replica."""
        changes = self._changes.since(numbers.get(self._name, 0))
        metrics = replace(self._engine.metrics(), work=StepWorkload(), latencies=Latencies())
        return Report(self._name, changes, metrics, self._engine.health())

    def load(self) -> float:
        """Share of the engine that requests use: of the texts that it computes at once, those that
        wait added, or of its KV blocks, whichever is more."""
        now = self._engine.metrics()
        wanted = self._engine.settings.max_sequences or self._engine.spec.max_sequences
        most = min(wanted, self._engine.spec.max_sequences)
        return max((now.running + now.waiting) / most, kv_use(now))

    async def answer(self, request: GenerationRequest) -> AsyncGenerator[Message, None]:
        """The messages of an answer. Closing it, or cancelling its task, cancels the request."""
        yield Begun(self._name)
        handle: Handle | None = None
        try:
            handle = await self._engine.asubmit(request)
            async for first in handle:
                yield Some((first, *handle.waiting()))
                await asyncio.sleep(_PAUSE_S)
            output: RequestOutput = handle.result()
            yield Ended(output.completions, output.prompt_logprobs)
        except EngineError as error:
            yield Failed(_lost(error))
        except OptcError as error:
            yield Failed(error)
        finally:
            if handle is not None and not handle.done:
                handle.cancel()

    def check(self) -> None:
        """Do nothing while the engine runs.

        Raises:
            EngineError: It failed: the replica should be started anew.
        """
        health = self._engine.health()
        if not health.alive:
            raise EngineError(f"the engine of replica {self._name} is {health.state}")

    def close(self) -> None:
        """Release the engine."""
        self._engine.close()


def _lost(error: EngineError) -> OptcError:
    """The error that the server is told. A request's own is its cause; others are the engine's,
    which ends."""
    cause = error.__cause__
    if isinstance(cause, RequestError):
        return cause
    return ReplicaLostError(f"{error.message}: {cause}" if cause else error.message)
