"""The memory that this process has taken, and giving back what it has freed.

Only glibc is told to give freed memory back; other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Parameters of mallopt in glibc's malloc.h; what they are by default; and memory without a bound.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_USUAL_MMAP_MAX, _USUAL_TRIM_BYTES = 65536, 32 << 20
_KEPT_BYTES = (1 << 31) - 1


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


def addresses_left() -> int | None:
    """Bytes of addresses that this process may still take (``ulimit -v``); None is no limit."""
    import resource  # where there is no such module, there is no such limit

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return max(0, most - pages * mmap.PAGESIZE)


@contextmanager
def freed_is_kept() -> Iterator[None]:
    """glibc keeps freed memory until `give_back_freed`, however large the piece.

    By itself it maps large arrays and unmaps them again: where each lives for milliseconds, half of
    the time goes into pages of zeros.
    """
    option = _function("mallopt")
    if option is not None:
        option(_MMAP_MAX, 0)
        option(_TRIM_THRESHOLD, _KEPT_BYTES)
    try:
        yield
    finally:
        if option is not None:
            option(_MMAP_MAX, _USUAL_MMAP_MAX)
            option(_TRIM_THRESHOLD, _USUAL_TRIM_BYTES)
            give_back_freed()


def _function(name: str) -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
