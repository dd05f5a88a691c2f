"""`Works`: what computes the requests of an `optc.runtime.engine.Engine`, and its sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from optc.runtime.adapters.table import AdapterTable
from optc.runtime.executable.executable import StepInterface
from optc.runtime.handle import Handle
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.metrics.engine_health import EngineHealth, State
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.submitting.submission import Submission

if TYPE_CHECKING:
    from optc.runtime.loop.core import Core


class Computes(Protocol):
    """Computes requests: `optc.runtime.loop.worker.Worker`, or replicas elsewhere. Any thread may
    call it."""

    @property
    def state(self) -> State:
        """The state of now."""
        ...

    def check(self) -> None:
        """Do nothing while requests can be handed in.

        Raises:
            EngineError: They cannot.
        """
        ...

    def submit(self, submissions: list[Submission]) -> None:
        """Hand requests in.

        Raises:
            BusyError: Too many wait.
            EngineError: As of `check`.
        """
        ...

    def cancel(self, handle: Handle) -> None:
        """Ask for the end of a request."""
        ...

    def call(self, function: Callable[[Core], None]) -> None:
        """Run ``function`` between two steps, and wait for it.

        Raises:
            OptcError: What it raised, or there is no such thread here.
        """
        ...

    def metrics(self) -> EngineMetrics:
        """Counters and queues of now."""
        ...

    def health(self) -> EngineHealth:
        """The state of now; waits for nothing."""
        ...

    def close(self) -> None:
        """Cancel what runs, and end."""
        ...


@dataclass(frozen=True)
class Works:
    """The worker that computes requests, and how large these may be.

    Attributes:
        worker: Computes them.
        spec: Of the engine.
        plan: Sizes of its KV pools.
        adapters: Those that are loaded.
    """

    worker: Computes
    spec: StepInterface
    plan: KVPlan
    adapters: AdapterTable
