"""The memory that there is to have."""

from __future__ import annotations

from pathlib import Path

from optc.system.control_groups import memory_left
from optc.system.processes.process_memory import addresses_left


def available_memory() -> int:
    """Bytes that this process could take now, as the kernel, its control groups and its own limit
    of addresses (``ulimit -v``) state them."""
    info = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    available = int(info["MemAvailable"].split()[0]) * 1024
    limits = (memory_left(), addresses_left())
    return min([available, *(limit for limit in limits if limit is not None)])
