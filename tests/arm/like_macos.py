"""Runs optc as on a Mac, as far as Python tells: ``python -m tests.arm.like_macos ARGUMENT…``.

What decides says that this is macOS on an Apple M2. Calls and files that Linux alone has are gone,
and the kernel answers as that of a Mac. The code of engines is this machine's.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from types import SimpleNamespace
from typing import Any

#: As `sysctl` prints them on a Mac with eight cores, four of them fast, and 16 GiB.
ANSWERS: dict[str, int | str] = {
    "hw.optional.AdvSIMD": 1,
    "hw.optional.arm.FEAT_DotProd": 1,
    "hw.optional.arm.FEAT_FP16": 1,
    "hw.optional.arm.FEAT_LSE": 1,
    "hw.optional.arm.FEAT_BF16": 1,
    "hw.optional.arm.FEAT_I8MM": 1,
    "hw.perflevel0.physicalcpu": 4,
    "hw.physicalcpu": 8,
    "hw.memsize": 16 << 30,
    "kern.memorystatus_level": 50,
    "machdep.cpu.brand_string": "Apple M2",
}
_LONG = {"hw.memsize"}
#: Names that Python has on Linux alone.
_LINUX = {
    os: ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "POSIX_FADV_WILLNEED"),
    mmap: ("MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MAP_POPULATE"),
}
_FOLDERS = ("/proc", "/sys/")


def kernel(answers: dict[str, int | str]) -> Any:
    """A C library whose ``sysctlbyname`` knows these names."""

    def sysctlbyname(name: bytes, value: Any, size: Any, new: None, length: Any) -> int:
        answer = answers.get(name.decode())
        if answer is None:
            return -1
        if isinstance(answer, str):
            data = answer.encode() + b"\0"
        else:
            data = answer.to_bytes(8 if name.decode() in _LONG else 4, "little")
        assert size._obj.value >= len(data)
        ctypes.memmove(value, data, len(data))
        size._obj.value = len(data)
        return 0

    return SimpleNamespace(sysctlbyname=sysctlbyname)


def _without_folders(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        if path.startswith(_FOLDERS):
            raise FileNotFoundError(2, "there is no such folder on macOS", path)


def pretend() -> None:
    """Make this process like one on a Mac, before it imports more of optc."""
    import numpy  # noqa: F401 - asks Linux for facts when it is imported

    from optc.system import macos, supported
    from optc.system.hardware import platforms

    platform.machine = lambda: "arm64"
    platforms.this_system = lambda: platforms.MACOS
    supported.sys = SimpleNamespace(platform="darwin")
    macos._library = lambda: kernel(ANSWERS)
    for module, names in _LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.addaudithook(_without_folders)


if __name__ == "__main__":
    pretend()
    from optc.cli.main import run

    sys.exit(run(sys.argv[1:]))
