"""The device of a training, and the precision of its products."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from optc.proof.reference.execution.device import CPU, CUDA, check_device
from optc.system.hardware.target import usable_threads

#: Runs of each precision that are timed, after one that is not.
_ROUNDS = 2


@dataclass(frozen=True)
class Place:
    """A device and a precision.

    Attributes:
        device: ``cpu`` or ``cuda``.
        precision: ``float32`` or ``bfloat16``.
    """

    device: str
    precision: str

    def autocast(self) -> AbstractContextManager[None]:
        """Products in the precision, within the block."""
        on = self.precision == "bfloat16"
        context: AbstractContextManager[None] = torch.autocast(
            self.device, torch.bfloat16, enabled=on
        )
        return context


def choose_device(asked: str, threads: int | None) -> str:
    """The device, and PyTorch's threads set.

    Raises:
        UnavailableError: A GPU is asked for, and there is none.
    """
    torch.set_num_threads(threads or usable_threads())
    if asked == CUDA:
        check_device(asked, "train")
    return CUDA if asked != CPU and torch.cuda.is_available() else CPU


def choose_precision(asked: str, device: str, work: Callable[[Place], None]) -> Place:
    """The precision asked for; of ``auto`` the one in which ``work`` takes less time here."""
    if asked != "auto":
        return Place(device, asked)
    places = [Place(device, precision) for precision in ("float32", "bfloat16")]
    return min(places, key=lambda place: _seconds(lambda: work(place), device))


def seconds_of(work: Callable[[], object], device: str) -> float:
    """The seconds of a run when nothing else runs: on a CPU, this thread's processor time, which
    other processes add nothing to; it has a part in all that several threads do."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    started = clock()
    work()
    return clock() - started


def _seconds(work: Callable[[], None], device: str) -> float:
    """The least time of a few runs."""
    work()
    return min(seconds_of(work, device) for _ in range(_ROUNDS))
