"""What an engine is compiled for: instruction set, threads and (optionally) measured peaks."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from optc.errors import InputError

#: CPU feature names (as in /proc/cpuinfo and LLVM) that the kernels choose between.
KERNEL_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
)
_V3 = ("avx2", "f16c", "fma")
_V4 = (*_V3, "avx512bw", "avx512dq", "avx512f", "avx512vl")


@dataclass(frozen=True)
class Target:
    """One compilation target.

    Attributes:
        name: As given on the command line: ``native``, ``x86-64-v3``, ``x86-64-v4-vnni``.
        kind: ``cpu`` or ``cuda``.
        features: CPU features (Linux names) that the engine may use and then requires, sorted.
        arch: CUDA architecture such as ``sm_90``; empty on CPU.
    """

    name: str
    kind: str
    features: tuple[str, ...] = ()
    arch: str = ""

    def missing_on(self, available: frozenset[str]) -> tuple[str, ...]:
        """The required CPU features that ``available`` lacks, sorted."""
        return tuple(sorted(set(self.features) - available))


def host_features() -> frozenset[str]:
    """CPU features of this machine that the kernels know, from the kernel's CPU description."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":", 1)[1].split()) & frozenset(KERNEL_FEATURES)
    return frozenset()


def cpu_name() -> str:
    """Model name of this machine's processor, from the kernel's CPU description."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def usable_threads() -> int:
    """Threads this process may really use: the lesser of CPU affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0))
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    if quota_file.exists():
        quota, period = quota_file.read_text().split()[:2]
        if quota != "max":
            count = min(count, max(1, int(quota) // int(period)))
    return count


def known_targets() -> dict[str, Target]:
    """Every target by name; ``native`` resolves to the features of this machine."""
    return {
        "native": Target("native", "cpu", tuple(sorted(host_features()))),
        "x86-64-v3": Target("x86-64-v3", "cpu", _V3),
        "x86-64-v4-vnni": Target("x86-64-v4-vnni", "cpu", tuple(sorted((*_V4, "avx512_vnni")))),
    }


def parse_target(name: str) -> Target:
    """The target called ``name``.

    Raises:
        InputError: No such target; the message lists those that exist.
    """
    targets = known_targets()
    if name not in targets:
        raise InputError(
            f"unknown target {name!r}", where="--target", hint=f"one of {', '.join(targets)}"
        )
    return targets[name]
