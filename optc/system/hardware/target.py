"""The target of an engine: a CPU's instruction set, or CUDA architectures."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from optc.errors import InputError
from optc.system.arm import arm_features, arm_name
from optc.system.cpu_quota import cpu_quota
from optc.system.hardware.platforms import (
    AARCH64,
    LINUX,
    MACOS,
    MACOS_ARM,
    X86_64,
    platform_of,
    this_processor,
    this_system,
)
from optc.system.hardware.tiles import TILE_FEATURES, tiles_refusal
from optc.system.macos import fast_cores, mac_features, mac_name
from optc.system.suggest import near

#: CPU feature names (Linux's) that the kernels choose between.
KERNEL_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_vbmi2",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "atomics",
    "i8mm",
)
#: Instructions that add four products of bytes to 32 bits, one of them on 512 bits.
VNNI = frozenset({"avx512_vnni", "avx_vnni"})
_V3 = ("avx2", "f16c", "fma")
_V4 = (*_V3, "avx512bw", "avx512dq", "avx512f", "avx512vl")
#: Sapphire Rapids and later have all of these.
_AMX = (*_V4, "avx512_vnni", "avx512_bf16", "avx512_vbmi2", "amx_tile", "amx_int8", "amx_bf16")
#: Armv8.2 with products of bytes: Neoverse N1 and later, Apple M1 and later.
_DOTPROD = ("asimd", "asimddp", "atomics")
#: Compute capabilities that engines are compiled for.
CUDA_SMS = (80, 86, 89, 90, 100, 120)
CUDA = "cuda:"


@dataclass(frozen=True)
class Target:
    """One compilation target.

    Attributes:
        name: As given on the command line: ``native``, ``x86-64-v3``, ``cuda:sm_80+sm_89``.
        kind: ``cpu`` or ``cuda``.
        features: CPU features (Linux names) that the engine may use and then requires, sorted.
        arch: CUDA architectures such as ``sm_90`` or ``sm_80+sm_89``; empty on CPU.
    """

    name: str
    kind: str
    features: tuple[str, ...] = ()
    arch: str = ""

    @property
    def sm(self) -> tuple[int, ...]:
        """Compute capabilities of `arch`, ascending: 90 is sm_90; none on CPU."""
        return tuple(int(name.removeprefix("sm_")) for name in self.arch.split("+") if name)

    @property
    def processor(self) -> str:
        """`X86_64` or `AARCH64`, by the features; empty on CUDA, and of a target without any."""
        return processor_of(self.features)

    @property
    def system(self) -> str:
        """`LINUX` or `MACOS`, which its engines run on: its name says so."""
        return MACOS if self.name.startswith(f"{MACOS_ARM}-") else LINUX

    @property
    def platform(self) -> str:
        """The platform that its code is for (`optc.system.hardware.platforms.platform_of`); empty
        on CUDA, and of a target without features."""
        return platform_of(self.processor, self.system)

    def missing_on(self, available: frozenset[str]) -> tuple[str, ...]:
        """The required CPU features that ``available`` lacks, sorted."""
        return tuple(sorted(set(self.features) - available))


def processor_of(features: Iterable[str]) -> str:
    """The kind of processor that has such features (Linux's names); empty if there are none."""
    names = set(features)
    return AARCH64 if "asimd" in names else X86_64 if names else ""


def host_features() -> frozenset[str]:
    """CPU features of this machine that the kernels know, as the system describes the CPU; those of
    tiles only if the system grants them, which it is asked for here."""
    found = _described_features()
    return found - TILE_FEATURES if tiles_withheld() else found


def tiles_withheld() -> str:
    """The reason why the system withholds the tiles that this CPU has; empty if it grants them, or
    there are none."""
    return tiles_refusal() if _described_features() & TILE_FEATURES else ""


def _described_features() -> frozenset[str]:
    if this_system() == MACOS:
        return mac_features() & frozenset(KERNEL_FEATURES)
    if this_processor() == AARCH64:
        return arm_features() & frozenset(KERNEL_FEATURES)
    return _x86_flags() & frozenset(KERNEL_FEATURES)


def _x86_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":", 1)[1].split())
    return frozenset()


def saturates_pairs() -> bool:
    """True if this CPU has no instructions but those that add products of bytes, two by two, to 16
    bits: x86 without VNNI."""
    if this_system() == MACOS or this_processor() == AARCH64:
        return False
    return not _x86_flags() & VNNI


def lacking(missing: Iterable[str], withheld: str = "") -> str:
    """Of features that are ``missing``: who lacks them, a clause behind their names.

    Args:
        missing: Their names.
        withheld: As `tiles_withheld` gives it.
    """
    if withheld and TILE_FEATURES.issuperset(missing):
        return f"which this CPU has but the system does not grant ({withheld})"
    return "which this CPU lacks"


def cpu_name() -> str:
    """Model name of this machine's processor, as the system gives it."""
    if this_system() == MACOS:
        return mac_name()
    if this_processor() == AARCH64:
        return arm_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def usable_threads() -> int:
    """Threads this process may really use: the lesser of CPU affinity and cgroup quota; on macOS,
    which has neither, as many as there are fast cores."""
    if this_system() == MACOS:
        return fast_cores()
    count = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return count if quota is None else min(count, max(1, int(quota)))


def known_targets() -> dict[str, Target]:
    """Every target by name; ``native`` resolves to the features of this machine, and is none of
    macOS, where nothing is compiled."""
    cpu = {
        "native": tuple(sorted(host_features())),
        "x86-64-v3": _V3,
        "x86-64-v3-vnni": tuple(sorted((*_V3, "avx_vnni"))),
        "x86-64-v4-vnni": tuple(sorted((*_V4, "avx512_vnni"))),
        "x86-64-amx": tuple(sorted(_AMX)),
        "aarch64-dotprod": _DOTPROD,
        "aarch64-i8mm": (*_DOTPROD, "i8mm"),
        f"{MACOS_ARM}-dotprod": _DOTPROD,
        f"{MACOS_ARM}-i8mm": (*_DOTPROD, "i8mm"),
    }
    if this_system() == MACOS:
        del cpu["native"]
    targets = [Target(name, "cpu", features) for name, features in cpu.items()]
    return {target.name: target for target in (*targets, *(cuda_target(sm) for sm in CUDA_SMS))}


def cuda_target(*sms: int) -> Target:
    """The target for all of these compute capabilities."""
    arch = "+".join(f"sm_{sm}" for sm in sorted(set(sms)))
    return Target(f"{CUDA}{arch}", "cuda", (), arch)


def parse_target(name: str, where: str = "--target") -> Target:
    """The target called ``name``; several CUDA architectures are joined by ``+`` or a comma
    (``cuda:sm_80+sm_89``), and ``cuda:`` may be left out.

    Args:
        name: As the user gave it.
        where: The option it came from, for messages.

    Raises:
        InputError: No such target; the message names what is near.
    """
    targets = known_targets()
    if name in targets:
        return targets[name]
    archs = name.removeprefix(CUDA).replace(",", "+").split("+")
    if not name.startswith(CUDA) and not all(arch.startswith("sm_") for arch in archs):
        raise InputError(f"unknown target {name!r}", where=where, hint=near(name, list(targets)))
    return cuda_target(*(_sm(arch, where) for arch in archs))


def _sm(arch: str, where: str) -> int:
    known = {f"sm_{sm}": sm for sm in CUDA_SMS}
    if arch not in known:
        raise InputError(
            f"unknown CUDA architecture {arch!r}", where=where, hint=f"one of {', '.join(known)}"
        )
    return known[arch]
