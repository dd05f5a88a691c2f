"""The memory that there is to have."""

from __future__ import annotations

from pathlib import Path

from optc.system.control_groups import memory_left
from optc.system.hardware.platforms import MACOS, this_system
from optc.system.macos import mac_memory_left
from optc.system.processes.process_memory import addresses_left

#: Of the memory that is left, what weights larger than that get: the rest is for keys and values,
#: for what steps compute and for pages that pass through.
_SHARE = 0.5


def available_memory() -> int:
    """Bytes that this process could take now, as the kernel, its control groups and its own limit
    of addresses (``ulimit -v``) state them; on macOS, the kernel alone."""
    if this_system() == MACOS:
        return mac_memory_left()
    info = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    available = int(info["MemAvailable"].split()[0]) * 1024
    limits = (memory_left(), addresses_left())
    return min([available, *(limit for limit in limits if limit is not None)])


def resident_default(weight_bytes: int) -> int | None:
    """Bytes of weights that stay in memory where nobody says how many; None are all of them, as
    they always are on macOS."""
    if this_system() == MACOS:
        return None
    left = available_memory()
    return None if weight_bytes <= left else int(left * _SHARE)
