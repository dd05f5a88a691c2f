"""Kernels compiled for aarch64 and run under the emulator."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from optc.backends.tvm.compiling.compiler import export
from optc.backends.tvm.isa import Isa
from optc.system.hardware.platforms import MACOS_ARM
from tests.arm.emulator import CPUS, ON_ARM, STANDS_FOR, call, need_emulator

_folder = tempfile.TemporaryDirectory(prefix="optc-arm-")


def target_of(name: str, features: tuple[str, ...] = ()) -> str:
    """Where kernels of all tests run on aarch64, the target that stands for ``name``; skips a test
    of a target that has no counterpart. Elsewhere ``name`` itself."""
    if not ON_ARM:
        return name
    need_emulator()
    if name not in STANDS_FOR:
        pytest.skip(f"aarch64 has nothing like {name}")
    return STANDS_FOR[name]


def only_here() -> None:
    """Skip a test of this machine's code where kernels run on aarch64."""
    if ON_ARM:
        pytest.skip("looks at code for this machine")


@cache
def linked(executable: Any, platform: str) -> Path:
    """The shared library of a compiled module."""
    suffix = "dylib" if platform == MACOS_ARM else "so"
    path = Path(_folder.name) / f"{id(executable)}.{suffix}"
    export(executable, path, platform=platform)
    return path


def run(executable: Any, function: str, isa: Isa, arrays: list[Any]) -> list[Any]:
    """``arrays`` as the function leaves them."""
    cpu = CPUS["aarch64-i8mm" if isa.i8mm else "aarch64-dotprod"]
    return call(linked(executable, isa.platform), function, arrays, cpu)
