"""What this process has taken of memory, and giving back what it has freed.

Only glibc is told to give freed memory back; other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def own_peak_bytes() -> int:
    """Most memory that this program has had resident, file-backed pages included.

    ``getrusage`` says more: Linux keeps its maximum across exec, so that a child begins with that
    of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def give_back_freed() -> None:
    """Return freed memory to the system: whole pages of it, which glibc would keep for later."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
