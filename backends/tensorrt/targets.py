"""The package that builds an engine for a target, and what is missing here for it.

TensorRT-RTX builds ahead of time, one engine for several GPUs, but has no kernels for sm_90 and
sm_100. TensorRT has kernels for all, and builds for the first GPU of the machine alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from optc.backends.tensorrt.provider import (
    FULL,
    INSTALL,
    RTX,
    RTX_ARCHITECTURES,
    installed_packages,
)
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target


def architectures_of(target: Target) -> tuple[str, ...]:
    """The GPUs of a target: ``sm_89``."""
    return tuple(f"sm_{sm}" for sm in target.sm)


def package_for(architectures: Sequence[str]) -> str:
    """The package that builds one engine for these GPUs: TensorRT-RTX where it has kernels for all
    of them, unless TensorRT alone is installed."""
    if _beyond_rtx(architectures) or installed_packages() == (FULL,):
        return FULL
    return RTX


def refusal(target: Target) -> str:
    """Empty if some package builds for targets such as this one, else the reason."""
    if target.kind != "cuda":
        return "TensorRT compiles for cuda targets only, such as tensorrt:sm_89"
    lacking = _beyond_rtx(architectures_of(target))
    if not lacking or len(target.sm) == 1:
        return ""
    return (
        f"TensorRT-RTX has no kernels for {', '.join(lacking)}, only for "
        f"{', '.join(RTX_ARCHITECTURES)}, and TensorRT builds an engine for one GPU: name "
        f"{', '.join(lacking)} alone"
    )


def lacks(target: Target, machine: Machine) -> str:
    """Empty if an engine for a target that is not refused can be built on the machine, else what
    is missing and how to get it."""
    architectures = architectures_of(target)
    package, named = package_for(architectures), ", ".join(architectures)
    if package not in installed_packages():
        if package == FULL:
            return f"TensorRT-RTX has no kernels for {named}, TensorRT has: {INSTALL[FULL]}"
        return f"the package {package} is not installed ({INSTALL[package]})"
    if package == RTX:
        return ""
    other = "" if _beyond_rtx(architectures) else f"; TensorRT-RTX needs no GPU: {INSTALL[RTX]}"
    if not machine.sm:
        return (
            f"TensorRT builds for the GPU of the machine, not ahead of time: {machine.no_cuda}; "
            f"compile on a machine with {named}{other}"
        )
    if (machine.sm[0],) != target.sm:
        return (
            f"TensorRT builds for the first GPU of the machine, which is sm_{machine.sm[0]}, not "
            f"for {named}{other}"
        )
    return ""


def _beyond_rtx(architectures: Sequence[str]) -> list[str]:
    return [one for one in architectures if one not in RTX_ARCHITECTURES]
