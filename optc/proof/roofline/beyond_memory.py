"""The cost of a step whose weights do not all stay in memory: bytes from the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import StepCosts
from optc.proof.roofline.estimate import EngineEstimate, decode_work
from optc.system.available import resident_default
from optc.system.hardware.disk import read_rates

#: Name of the disk's rate among ceilings, in bytes/s.
DISK = "disk"


@dataclass(frozen=True)
class BeyondMemory:
    """A decode step of one sequence by an engine that is larger than the memory for it.

    Attributes:
        resident_bytes: Of the weights, those that stay in memory.
        read_bytes: Those that a token reads from the disk, where experts are chosen evenly; choices
            that repeat read fewer.
        disk_bytes_per_s: Of this machine; None where it was not measured.
        tokens_per_s: The bound by both; None without the rate.
    """

    resident_bytes: int
    read_bytes: int
    disk_bytes_per_s: float | None = None
    tokens_per_s: float | None = None


def beyond_memory(
    estimate: EngineEstimate,
    context: int,
    resident: int | None,
    ceilings: Mapping[str, Ceiling] | None = None,
) -> BeyondMemory | None:
    """The cost of a token; None where all weights stay in memory.

    Args:
        estimate: Of the engine.
        context: Tokens of the sequence.
        resident: Bytes of weights that stay; None leaves that to the memory.
        ceilings: Of this machine, `DISK` among them.
    """
    whole = estimate.weight_bytes
    kept = resident_default(whole) if resident is None else resident
    if kept is None or kept >= whole:
        return None
    read = disk_bytes(estimate.costs, decode_work(estimate.spec, context), kept)
    found = None if ceilings is None else ceilings.get(DISK)
    rate = None if found is None else found.best
    return BeyondMemory(kept, read, rate, rate / read if rate and read else None)


def disk_bytes(costs: StepCosts, work: Mapping[str, float], resident: int) -> int:
    """Bytes of weights that a step reads from the disk.

    Weights of every step stay before experts, as they are used more often; of the experts, any.

    Args:
        costs: Of the engine's steps.
        work: Of the step; its experts are chosen evenly.
        resident: Bytes of weights that stay in memory.
    """
    always = chosen = experts = 0.0
    for cost in costs.kernels.values():
        for kind, each in cost.bytes.items():
            if kind == "1":
                always += each
            elif "of" in kind:
                chosen += each * work[kind]
                experts += each * int(kind.partition("of")[2])
    left = resident - always
    if left < 0:
        return round(chosen - left)
    return round(chosen * max(0.0, 1 - left / experts)) if experts else 0


def disk_ceiling(path: Path) -> Ceiling | None:
    """The rate of the disk with a file, or with the largest file of a folder; None where it cannot
    be measured."""
    files = [path] if path.is_file() else [one for one in path.glob("*") if one.is_file()]
    largest = max(files, key=lambda one: one.stat().st_size, default=None)
    rates = [] if largest is None else read_rates(largest)
    return Ceiling(max(rates), median(rates)) if rates else None
