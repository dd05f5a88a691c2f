from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from optc.system.hardware.machine import this_machine
from tests.support.shared import made_once

#: Tests that need a CUDA device; without one they run on the emulator (`test_emulated`).
collect_ignore = [] if this_machine().sm else ["on_device"]
EMULATOR = Path(__file__).parent / "emulator"
_IS_WORKER = re.compile("PYTEST_XDIST_")


def _make_emulator(folder: Path) -> Path:
    """Write the libraries, the compiler and its header."""
    for library, functions in (("libcuda.so.1", "cu*"), ("libcudart.so.13", "cuda*")):
        versions = folder / "versions"
        versions.write_text(f"{library} {{ global: {functions}; local: *; }};\n")
        command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{library}"]
        command += [f"-Wl,--version-script={versions}", "-o", str(folder / library)]
        subprocess.run([*command, str(EMULATOR / "driver.cpp"), "-ldl"], check=True)
    nvcc, script = folder / "nvcc", str(EMULATOR / "nvcc.py")
    # without site-packages, which nvcc.py does not need
    nvcc.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{script}" "$@"\n')
    header = str(folder / "emulator.h.gch")
    subprocess.run([sys.executable, script, "--header", header], check=True)
    nvcc.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of processes that see a CUDA device, which this machine's CPU emulates."""
    folder = made_once(tmp_path_factory, "emulator", _make_emulator)
    # pytest in such a process is no worker: its folders are its own, not all runs'
    variables = {name: value for name, value in os.environ.items() if not _IS_WORKER.match(name)}
    return {
        **variables,
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "EMULATED_SM": "90",
        "EMULATOR_HEADERS": str(folder),
    }
