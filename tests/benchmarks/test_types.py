"""Benchmarks call the code as it is now, also those that no other test runs: mypy says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_mypy_finds_nothing_in_the_benchmarks(tmp_path: Path) -> None:
    # A cache of its own, so that the state of no other run has a say: half a minute on one core.
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "-p", "benchmarks"]
    # Of modules on PYTHONPATH mypy shows no errors: among them may be those that benchmarks import.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
