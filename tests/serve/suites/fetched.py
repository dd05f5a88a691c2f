"""Gets packages that suites and clients are, for tests marked ``long``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def pip(*arguments: object) -> None:
    """A command of pip; who asks is skipped where it fails: there may be no index here."""
    _run([sys.executable, "-m", "pip", "--quiet", *map(str, arguments)])


def npm(folder: Path, package: str) -> None:
    """A package of npm in a folder; who asks is skipped where there is no npm, or no index."""
    found = shutil.which("npm")
    if found is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    _run([found, "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, package])


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot be fetched here: {done.stderr.strip()[-200:]}")
