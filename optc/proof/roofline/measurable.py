"""The interface of a backend whose engines can be measured; `optc bench` asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from optc.proof.roofline.ceilings import Meter
from optc.proof.roofline.costs import StepCosts
from optc.runtime.executable.executable import StepBatch, StepInterface
from optc.system.hardware.target import Target


@dataclass(frozen=True)
class KernelTime:
    """Seconds of all calls of one kernel in a step."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class StepTimes:
    """The times of a step and its kernels.

    Attributes:
        step_s: The whole call of the engine, in the fastest round.
        kernels: Its kernels, replayed one by one in the step's order, each call in its fastest
            round; the cost of a measured call is subtracted.
        call_s: That cost: seconds that measuring added to each call.
        rounds_s: The whole call in every round, in order.
    """

    step_s: float
    kernels: tuple[KernelTime, ...]
    call_s: float
    rounds_s: tuple[float, ...] = ()


class Profiler(Protocol):
    """A loaded engine whose kernels can be timed; every call must come from one thread."""

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """As `optc.runtime.executable.executable.Executable.allocate_kv`."""
        ...

    def time_step(self, batch: StepBatch, rounds: int, before: Callable[[], None]) -> StepTimes:
        """Time the step and each of its kernels ``rounds`` times; ``before`` is called before each
        round."""
        ...

    def close(self) -> None:
        """Release the engine."""
        ...


@runtime_checkable
class MeasurableBackend(Protocol):
    """Methods beside `optc.backend.Backend`; a backend may lack them."""

    def step_costs(self, data: dict[str, Any]) -> StepCosts:
        """Costs of an engine's step, from its build's ``backend_data``.

        Raises:
            optc.errors.UnavailableError: The engine was built without.
        """
        ...

    def open_meter(
        self, folder: Path, data: dict[str, Any], threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings of this machine, by loops that the engine carries; needs no compiler.

        Raises:
            optc.errors.UnavailableError: The engine was built without.
        """
        ...

    def open_profiler(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Profiler:
        """Load the engine for profiling; raises as `optc.backend.StepBackend.load` does."""
        ...

    def build_meter(
        self, target: Target, folder: Path, threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings of ``target``, compiled into ``folder``.

        Raises:
            optc.errors.UnavailableError: The compiler is missing, or this CPU cannot run it.
        """
        ...
