"""The highest rates of a machine: the denominators of MBU and MFU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: Time that ceilings are measured before each round of a benchmark.
SAMPLING_S = 0.1
#: Share of the best that the median reaches on an idle machine.
STEADY = 0.75


@dataclass(frozen=True)
class Ceiling:
    """One ceiling, in bytes/s or operations/s: the best sample and the median of all."""

    best: float
    median: float


class Meter(Protocol):
    """Measures ceilings; every call must come from one thread."""

    #: Bytes that the read kernels go over in turn.
    read_bytes: int

    def measure(self) -> Mapping[str, float]:
        """Take one more sample of every ceiling (some milliseconds); returns it, by the names of
        `ceilings`."""
        ...

    def ceilings(self) -> dict[str, Ceiling]:
        """``read`` (bytes/s) and a peak (operations/s) for each of ``int8``, ``int4``, ``bf16``,
        ``fp32`` that the CPU has instructions of its own for."""
        ...


def sample(meter: Meter, seconds: float = SAMPLING_S) -> None:
    """Measure for some time: one sample alone may meet another program on the machine."""
    ends = time.perf_counter() + seconds
    meter.measure()
    while time.perf_counter() < ends:
        meter.measure()


def ceilings_json(meter: Meter) -> dict[str, Any]:
    """The ``ceilings`` of ``--json`` output: best and median in GB/s and Gop/s."""
    found: Mapping[str, Ceiling] = meter.ceilings()
    values: dict[str, Any] = {"read_bytes": meter.read_bytes}
    for name, ceiling in found.items():
        unit = "gb_per_s" if name == "read" else "gop_per_s"
        values[f"{name}_{unit}"] = {"best": ceiling.best / 1e9, "median": ceiling.median / 1e9}
    return values


def disturbances(meter: Meter) -> list[str]:
    """A warning if other programs took much of the machine while it was measured."""
    low = {name: c.median / c.best for name, c in meter.ceilings().items()}
    worst = min(low, key=lambda name: low[name])
    if low[worst] >= STEADY:
        return []
    return [
        f"other programs disturbed the ceilings: the median of {worst} is {low[worst]:.2f} of its "
        "best; repeat on an idle machine"
    ]
