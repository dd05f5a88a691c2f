"""Platforms: the processors and systems that engines for CPUs are compiled for, and this one's."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping

#: Kinds of processors, as ``uname -m`` of Linux calls them.
X86_64, AARCH64 = "x86_64", "aarch64"
#: Systems that engines run on.
LINUX, MACOS = "linux", "macos"
SYSTEM_NAMES: Mapping[str, str] = {LINUX: "Linux", MACOS: "macOS"}
#: The platform of macOS on Apple silicon. Those of Linux are called as their processors.
MACOS_ARM = "arm64-macos"


def platform_of(processor: str, system: str) -> str:
    """The platform of a ``processor`` and a ``system``: `X86_64`, `AARCH64` or `MACOS_ARM`; empty
    if the processor is."""
    if not processor or system == LINUX:
        return processor
    return MACOS_ARM if processor == AARCH64 else f"{processor}-{system}"


def this_system() -> str:
    """The system that this process runs on: `LINUX` or `MACOS`."""
    return MACOS if sys.platform == "darwin" else LINUX


def this_processor() -> str:
    """The kind of processor that this process runs on."""
    machine = platform.machine()
    return AARCH64 if machine == "arm64" else machine


def this_platform() -> str:
    """The platform of this machine."""
    return platform_of(this_processor(), this_system())
