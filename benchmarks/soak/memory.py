"""Memory of this process, and how much it grows."""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: Python's objects come from malloc, too, so that `allocated` counts them all; and malloc has one
#: heap. By itself glibc gives threads up to eight heaps a core, of which each round's engine meets
#: others: what freed objects leave in them moved resident memory by 6 % from round to round, up
#: and down, and hid what it should show.
EXACT = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}


class Resident(NamedTuple):
    """Bytes resident now: all of it, and what is not of files."""

    all: int
    anonymous: int


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc's malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def measure_exactly(module: str) -> None:
    """Begin the program ``python -m module`` anew where its memory would not be counted exactly;
    it must have done nothing so far."""
    if any(os.environ.get(name) != value for name, value in EXACT.items()):
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | EXACT)


def allocated() -> int | None:
    """Bytes that malloc has given out and that were not freed, wherever they lie: resident memory
    without what freed objects leave between others. None where the C library does not say."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = _Mallinfo
    said = ask()
    return int(said.uordblks + said.hblkhd)


def resident() -> Resident:
    """Of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        name: 1024 * int(value.split()[0])
        for name, value in (line.split(":", 1) for line in lines)
        if name in ("VmRSS", "RssAnon")
    }
    return Resident(sizes["VmRSS"], sizes["RssAnon"])


def growth_percent(samples: Sequence[tuple[float, float]]) -> float | None:
    """By how many percent something grew in the second half of ``samples`` (seconds, amount).

    The slope between each pair of samples, the median of them (Theil and Sen), over the half's
    time, so that a few high samples do not count. None with fewer than four samples in that half.
    """
    begun, ended = samples[0][0], samples[-1][0]
    half = [sample for sample in samples if sample[0] >= (begun + ended) / 2]
    if len(half) < 4:
        return None
    slope = statistics.median(
        (b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(half) for b in half[i + 1 :]
    )
    middle = statistics.median(amount for _, amount in half)
    return 100 * slope * (half[-1][0] - half[0][0]) / middle
