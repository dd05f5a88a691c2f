"""The features and the name of an aarch64 processor, as Linux gives them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

_AUXILIARY = Path("/proc/self/auxv")
_CPUINFO = Path("/proc/cpuinfo")
#: Entries of the auxiliary vector -> bit -> Linux's name of the feature (asm/hwcap.h).
_HWCAP: Mapping[int, Mapping[int, str]] = {
    16: {1: "asimd", 8: "atomics", 10: "asimdhp", 20: "asimddp", 22: "sve"},
    26: {1: "sve2", 13: "i8mm", 14: "bf16"},
}
#: Implementer and part of processors, as Linux gives them, that servers and laptops have.
_PARTS = {
    (0x41, 0xD0C): "Arm Neoverse N1",
    (0x41, 0xD40): "Arm Neoverse V1",
    (0x41, 0xD49): "Arm Neoverse N2",
    (0x41, 0xD4F): "Arm Neoverse V2",
    (0x41, 0xD08): "Arm Cortex-A72",
    (0x41, 0xD0B): "Arm Cortex-A76",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}


def arm_features(auxiliary: bytes | None = None) -> frozenset[str]:
    """Features of the processor, of those that kernels may use or a report names.

    Args:
        auxiliary: The auxiliary vector, pairs of u64; None is this process's. What emulates a
            processor for one program shows it there and not in ``/proc/cpuinfo``.
    """
    data = _AUXILIARY.read_bytes() if auxiliary is None else auxiliary
    whole = len(data) // 16 * 16
    words = dict(struct.iter_unpack("=QQ", data[:whole]))
    return frozenset(
        name
        for entry, bits in _HWCAP.items()
        for bit, name in bits.items()
        if words.get(entry, 0) >> bit & 1
    )


def arm_name(cpuinfo: str | None = None) -> str:
    """Name of the processor; its implementer and part as numbers if they are not known.

    Args:
        cpuinfo: The kernel's description; None is this machine's.
    """
    text = _CPUINFO.read_text() if cpuinfo is None else cpuinfo
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in pairs}
    try:
        part = int(fields["CPU implementer"], 16), int(fields["CPU part"], 16)
    except (KeyError, ValueError):
        return "aarch64"
    return _PARTS.get(part, f"aarch64 (implementer {part[0]:#x}, part {part[1]:#x})")
