"""Runs the tests of ``on_device`` on the emulator: emitted kernels compiled for the host, behind
libraries that stand in for CUDA's driver and runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ON_DEVICE = Path(__file__).parent / "on_device"


@pytest.mark.parametrize("module", sorted(p.stem for p in ON_DEVICE.glob("test_*.py")))
def test_on_the_emulator(module: str, emulator: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(ON_DEVICE / f"{module}.py")],
        env=emulator,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
