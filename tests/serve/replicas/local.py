"""Replicas in this process: all that they send and get is pickled, as between processes."""

from __future__ import annotations

import pickle
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from optc.errors import ReplicaLostError
from optc.runtime.engine import Engine
from optc.runtime.kv_events.events import StepLog
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.settings import ServeSettings
from optc.serve.replicas.engine import ReplicatedEngine
from optc.serve.replicas.replica import Open, Replica
from optc.serve.replicas.wire import Described, Message, Report
from optc.serve.replicas.worker import ReplicatedWorker
from tests.serve.toys import tokenizer, toy_engine

T = TypeVar("T")


class LocalReplicas:
    """Replicas that can be killed.

    Args:
        opens: Load their engines.
        adapters: Of each.
    """

    def __init__(self, opens: Sequence[Open], adapters: Mapping[str, Path] | None = None) -> None:
        self.engines: dict[str, Engine] = {}
        self.replicas: dict[str, Replica] = {}
        self.sent: list[str] = []
        self._opens = list(opens)
        self._adapters = dict(adapters or {})
        for number in range(len(opens)):
            self.add(f"r{number}", self._opens[number])

    def add(self, name: str, opened: Open) -> None:
        """One more."""

        def noted(log: StepLog) -> Engine:
            self.engines[name] = opened(log)
            return self.engines[name]

        self.replicas[name] = Replica(name, noted, self._adapters)

    def kill(self, name: str) -> None:
        """The next message of it is that it is gone."""
        del self.replicas[name]

    async def ask(
        self, request: GenerationRequest, order: Sequence[str]
    ) -> AsyncGenerator[Message, None]:
        name = next((one for one in order if one in self.replicas), next(iter(self.replicas)))
        self.sent.append(name)
        async with aclosing(self.replicas[name].answer(through(request))) as messages:
            async for message in messages:
                if name not in self.replicas:
                    raise ReplicaLostError("the replica that computed the answer is gone")
                yield through(message)

    async def reports(self, numbers: Mapping[str, int]) -> list[Report]:
        return [through(one.report(numbers)) for one in list(self.replicas.values())]

    async def describe(self) -> Described:
        return through(next(iter(self.replicas.values())).describe())

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


def through(value: T) -> T:
    """What arrives of it in another process."""
    found: T = pickle.loads(pickle.dumps(value))
    return found


def toy(**settings: Any) -> Open:
    """Loads the toy."""
    return lambda log: toy_engine(log=log, **settings)


def replicated(
    *opens: Open,
    settings: ServeSettings | None = None,
    adapters: Mapping[str, Path] | None = None,
    report_s: float = 0.01,
) -> tuple[ReplicatedEngine, LocalReplicas]:
    """An engine of replicas, as `toy_engine` gives one of its own."""
    replicas = LocalReplicas(opens or (toy(), toy()), adapters)
    chosen = settings or ServeSettings()
    worker = ReplicatedWorker(replicas, chosen.max_waiting, report_s)
    engine = ReplicatedEngine(worker, chosen, tokenizer=tokenizer(), eos_token_ids=(1,))
    return engine, replicas


Made = tuple[ReplicatedEngine, LocalReplicas]
Make = Callable[..., Made]
