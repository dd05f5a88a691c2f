"""`ReplicaOptions`: how many replicas there are, and what each of them gets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from optc.errors import InputError

_COUNTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_HINT = "replicas=2, or with autoscaling replicas=1-4; besides cpus=N and gpus=N of each"


@dataclass(frozen=True)
class ReplicaOptions:
    """The replicas that a user wants.

    Attributes:
        least: Replicas that there are at least.
        most: That there are at most; more than ``least`` is autoscaling.
        cpus: CPUs of each; None is an equal share of this machine.
        gpus: GPUs of each.
    """

    least: int
    most: int
    cpus: int | None = None
    gpus: int = 0

    def share(self, cpus: int) -> int:
        """CPUs of each replica on a machine that has so many."""
        return max(1, cpus // self.most) if self.cpus is None else self.cpus


def parse_replicas(text: str, where: str) -> ReplicaOptions:
    """Options from ``replicas=N[-M][,cpus=N][,gpus=N]``.

    Raises:
        InputError: It is something else.
    """
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    values = dict(pairs)
    counts = _COUNTS.fullmatch(values.pop("replicas", ""))
    numbers = {name: value for name, value in values.items() if name in ("cpus", "gpus")}
    plain = all(value.isdecimal() and value.isascii() for value in numbers.values())
    if counts is None or not plain or len(values) != len(numbers) or len(pairs) != 1 + len(values):
        raise InputError(f"{text!r} says not what the replicas are", where=where, hint=_HINT)
    least, most = int(counts[1]), int(counts[2] or counts[1])
    cpus = int(numbers["cpus"]) if "cpus" in numbers else None
    if not 1 <= least <= most or cpus == 0:
        raise InputError(f"{text!r}: at least 1 replica, with 1 CPU", where=where, hint=_HINT)
    return ReplicaOptions(least, most, cpus, int(numbers.get("gpus", "0")))
