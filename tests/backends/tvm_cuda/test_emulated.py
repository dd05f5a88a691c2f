"""Runs the tests of ``on_device`` on the emulator: emitted kernels compiled for the host, behind
libraries that stand in for CUDA's driver and runtime."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ON_DEVICE = Path(__file__).parent / "on_device"


#: Modules that share a process, as starting one takes seconds.
GROUPS = (
    ("test_attention", "test_features", "test_experts"),
    ("test_engine", "test_graphs"),
    ("test_kv", "test_matmul", "test_rows"),
)


def test_every_module_is_in_a_group() -> None:
    assert sorted(chain.from_iterable(GROUPS)) == sorted(
        p.stem for p in ON_DEVICE.glob("test_*.py")
    )


@pytest.mark.parametrize("modules", GROUPS, ids="-".join)
def test_on_the_emulator(modules: tuple[str, ...], emulator: dict[str, str]) -> None:
    check(modules, "not long", emulator)


@pytest.mark.long
def test_long_cases_on_the_emulator(emulator: dict[str, str]) -> None:
    check(tuple(chain.from_iterable(GROUPS)), "long", emulator)


def check(modules: tuple[str, ...], which: str, emulator: dict[str, str]) -> None:
    """The tests of these modules pass, of those with, or without, the marker ``long``."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider"]
    command += ["-m", which]
    done = subprocess.run(
        [*command, *(str(ON_DEVICE / f"{module}.py") for module in modules)],
        env=emulator,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
