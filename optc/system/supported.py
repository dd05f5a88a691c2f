"""The operating systems that optc runs on."""

from __future__ import annotations

import sys

from optc.errors import UnavailableError

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}


def check_system() -> None:
    """Do nothing on Linux.

    Raises:
        UnavailableError: This is another system.
    """
    if sys.platform == "linux":
        return
    raise UnavailableError(
        f"optc runs on Linux, and this is {_NAMES.get(sys.platform, sys.platform)}",
        hint="use a container, a virtual machine or, on Windows, WSL 2",
    )
