"""A Python of aarch64 under qemu, in which kernels and engines for that processor run here.

`make test-arm` installs it (`tests.arm.install`) and runs the tests of kernels with `ON_ARM` set:
then names of x86's targets stand for those of aarch64 (`target_of`), and kernels run in the
emulator.
"""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Where `tests.arm.install` puts all of it.
FOLDER = ROOT / ".arm"
#: The runtime libraries of TVM.
RUNTIME = FOLDER / "runtime"
#: All that `make test-arm` runs; `make test` runs a small part.
FULL = bool(os.environ.get("OPTC_TEST_ARM_ENGINES"))
#: Kernels of all tests run on aarch64: ``linux`` or ``macos`` says which targets are meant.
ON_ARM = os.environ.get("OPTC_TEST_ARM", "")
#: The target of aarch64 that stands for one of x86.
_KIND = "arm64-macos" if ON_ARM == "macos" else "aarch64"
STANDS_FOR = {"x86-64-v3": f"{_KIND}-dotprod", "x86-64-v4-vnni": f"{_KIND}-i8mm"}
#: Processors that qemu knows with the features of a target, and no more products of bytes.
CPUS = {"aarch64-dotprod": "neoverse-n1", "aarch64-i8mm": "max"}


def missing() -> str:
    """Empty if the emulator is installed, else what to do."""
    parts = ("qemu-aarch64-static", "root/usr/bin/python3.11", "site/numpy", "runtime")
    absent = [part for part in parts if not (FOLDER / part).exists()]
    return f"'make test-arm' installs what is not here: {', '.join(absent)}" if absent else ""


def need_emulator() -> None:
    """Skip the test where there is no emulator."""
    if reason := missing():
        pytest.skip(reason)


def python(*arguments: str, cpu: str = "max") -> list[str]:
    """The command that runs the emulated Python with ``arguments``."""
    root = FOLDER / "root"
    emulated = (str(FOLDER / "qemu-aarch64-static"), "-cpu", cpu, "-L", str(root))
    return [*emulated, str(root / "usr/bin/python3.11"), *arguments]


def environment() -> dict[str, str]:
    """Its environment: its own packages, then this checkout."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    own = {"PYTHONPATH": f"{FOLDER / 'site'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **own, "TVM_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}


@cache
def _worker(cpu: str) -> subprocess.Popen[bytes]:
    command = python("-m", "tests.arm.worker", str(RUNTIME), cpu=cpu)
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=environment())
    atexit.register(worker.kill)
    return worker


def call(library: Path, function: str, arrays: list[Any], cpu: str) -> list[Any]:
    """``arrays`` as the function of a library for aarch64 leaves them, on qemu's ``cpu``."""
    worker = _worker(cpu)
    assert worker.stdin is not None
    assert worker.stdout is not None
    request = pickle.dumps({"library": str(library), "function": function, "arrays": arrays}, 5)
    worker.stdin.write(struct.pack("=q", len(request)) + request)
    worker.stdin.flush()
    head = worker.stdout.read(8)
    assert head, f"the emulator ended: {worker.wait()}"
    answer = pickle.loads(worker.stdout.read(struct.unpack("=q", head)[0]))
    assert isinstance(answer, list), answer
    return answer
