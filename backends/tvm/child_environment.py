"""What processes that load the compiler are started with."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """The child finds the same packages as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
