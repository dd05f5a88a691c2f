"""The processor and the memory of a Mac, as its kernel gives them (sysctl(3)).

Written after Apple's description of the names; it has not run on a Mac yet.
"""

from __future__ import annotations

import ctypes
from typing import Any

#: Linux's name of a feature -> the kernel's (macOS 12 and later).
_FEATURES = {
    "asimd": "hw.optional.AdvSIMD",
    "asimddp": "hw.optional.arm.FEAT_DotProd",
    "asimdhp": "hw.optional.arm.FEAT_FP16",
    "atomics": "hw.optional.arm.FEAT_LSE",
    "bf16": "hw.optional.arm.FEAT_BF16",
    "i8mm": "hw.optional.arm.FEAT_I8MM",
}
_NAME = "machdep.cpu.brand_string"
#: Cores of the fastest kind; older systems do not tell kinds apart.
_CORES = ("hw.perflevel0.physicalcpu", "hw.physicalcpu")
#: Bytes of memory, and how much of it is to have, in percent.
_MEMORY, _LEFT = "hw.memsize", "kern.memorystatus_level"
_TEXT_BYTES = 256


def mac_features() -> frozenset[str]:
    """Features of the processor by Linux's names, of those that kernels may use."""
    return frozenset(name for name, key in _FEATURES.items() if _number(key))


def mac_name() -> str:
    """Name of the processor, such as ``Apple M2``; ``arm64`` if the kernel does not say."""
    return _read(_NAME, _TEXT_BYTES).split(b"\0")[0].decode("utf-8", "replace") or "arm64"


def fast_cores() -> int:
    """Cores of the fastest kind: the others would hold up what all threads wait for."""
    return next((count for name in _CORES if (count := _number(name))), 1)


def mac_memory_left() -> int:
    """Bytes of memory that are to have; half of all where the kernel does not say."""
    share = _number(_LEFT)
    return _number(_MEMORY) * (share if 0 < share <= 100 else 50) // 100


def _number(name: str) -> int:
    """An integer of the kernel; 0 where there is none of that name."""
    return int.from_bytes(_read(name, 8), "little", signed=True)


def _read(name: str, most: int) -> bytes:
    """The value of ``name``, at most so many bytes; empty where there is none."""
    value, size = ctypes.create_string_buffer(most), ctypes.c_size_t(most)
    call = getattr(_library(), "sysctlbyname", None)
    if call is None or call(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return b""
    return value.raw[: size.value]


def _library() -> Any:
    return ctypes.CDLL(None)
