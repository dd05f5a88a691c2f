"""The messages between a server and its replicas; all of them can be pickled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from optc.errors import OptcError
from optc.runtime.engine_info import EngineInfo
from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.metrics.engine_health import EngineHealth
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.outputs import Completion, Delta
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
from optc.serve.replicas.block_changes import Changes


@dataclass(frozen=True)
class Described:
    """A replica's engine; all replicas have the same.

    Attributes:
        spec: Of it.
        plan: Sizes of its KV pools.
        info: Where it comes from.
        adapters: Names of its adapters, in the order in which they were loaded.
    """

    spec: StepInterface
    plan: KVPlan
    info: EngineInfo | None
    adapters: tuple[str, ...]


@dataclass(frozen=True)
class Begun:
    """The first message of an answer.

    Attributes:
        replica: Who computes it.
    """

    replica: str


@dataclass(frozen=True)
class Some:
    """A part of an answer.

    Attributes:
        deltas: Of its completions, as they came.
    """

    deltas: tuple[Delta, ...]


@dataclass(frozen=True)
class Ended:
    """The last message of an answer.

    Attributes:
        completions: All of it.
        scored: Log-probabilities of the prompt, if they were asked for.
    """

    completions: tuple[Completion, ...]
    scored: PromptLogprobs | None


@dataclass(frozen=True)
class Failed:
    """The last message of a request that failed.

    Attributes:
        error: Why.
    """

    error: OptcError


Message = Begun | Some | Ended | Failed


@dataclass(frozen=True)
class Report:
    """The state of a replica.

    Attributes:
        replica: Which.
        changes: Of its prefix cache.
        metrics: Counters of now.
        health: Of now.
    """

    replica: str
    changes: Changes
    metrics: EngineMetrics
    health: EngineHealth


class Replicas(Protocol):
    """Reaches the replicas. Used from one event loop."""

    def ask(
        self, request: GenerationRequest, order: Sequence[str]
    ) -> AsyncGenerator[Message, None]:
        """The messages of an answer; closing it cancels the request.

        Args:
            request: Its prompt is token ids.
            order: Replicas, the best first; others come behind.

        Raises:
            ReplicaLostError: While it is read: the replica is gone.
        """
        ...

    async def reports(self, numbers: Mapping[str, int]) -> list[Report]:
        """Reports of all replicas that take requests and answer in time.

        Args:
            numbers: By replica, the number of the last change that was heard of.
        """
        ...

    async def describe(self) -> Described:
        """The engine of any of them."""
        ...

    def close(self) -> None:
        """End all of them; called from another thread, once nothing is asked any more."""
        ...
