"""`RayReplica`: a `Replica` as Ray Serve runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.replicas.replica import Open, Replica
from optc.serve.replicas.scaling import wanted
from optc.serve.replicas.wire import Described, Message, Report

#: What replicas tell the autoscaler.
_LOAD = "load"


class RayReplica:
    """One replica of a deployment, in a process of its own.

    Args:
        open_engine: Loads its engine.
        adapters: Folders of its adapters by name.
    """

    def __init__(self, open_engine: Open, adapters: Mapping[str, Path]) -> None:
        from ray import serve

        name = serve.get_replica_context().replica_id.unique_id
        self._replica = Replica(name, open_engine, adapters)

    async def answer(
        self, request: GenerationRequest, order: Sequence[str]
    ) -> AsyncGenerator[Message, None]:
        """The messages of an answer; ``order`` is for the router (`InOrder`)."""
        async for message in self._replica.answer(request):
            yield message

    async def report(self, numbers: Mapping[str, int]) -> Report:
        """The state of now."""
        return self._replica.report(numbers)

    async def describe(self, nothing: None, order: Sequence[str]) -> Described:
        """The engine; the arguments are for the router."""
        return self._replica.describe()

    async def check_health(self) -> None:
        """Raise where Ray should start another replica instead."""
        self._replica.check()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The share of it that is used."""
        return {_LOAD: self._replica.load()}

    def __del__(self) -> None:
        """Ray ends a replica so, once its answers have ended."""
        if hasattr(self, "_replica"):
            self._replica.close()


def scaled(context: Any) -> tuple[int, dict[str, Any]]:
    """Ray's autoscaling policy: the number of replicas by their loads
    (`optc.serve.replicas.scaling`), and no state."""
    loads = (context.aggregated_metrics or {}).get(_LOAD, {})
    if not loads:
        return context.target_num_replicas, {}
    return wanted(list(loads.values())), {}
