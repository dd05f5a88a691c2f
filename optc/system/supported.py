"""The operating systems that optc runs on."""

from __future__ import annotations

import sys

from optc.errors import UnavailableError
from optc.system.hardware.platforms import AARCH64, this_processor

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}
_MAC = "darwin"


def check_system(*, compiling: bool = False) -> None:
    """Do nothing on Linux, nor on macOS of Apple silicon, which runs engines and compiles none.

    Args:
        compiling: The caller compiles, or judges what was compiled.

    Raises:
        UnavailableError: This is another system.
    """
    apple = sys.platform == _MAC and this_processor() == AARCH64
    if sys.platform == "linux" or (apple and not compiling):
        return
    if apple:
        raise UnavailableError(
            "optc compiles on Linux, and this is macOS",
            hint="compile on Linux with --target arm64-macos-dotprod,arm64-macos-i8mm and copy the "
            "artifact",
        )
    name = _NAMES.get(sys.platform, sys.platform)
    if sys.platform == _MAC:
        name += f" on {this_processor()}"
    raise UnavailableError(
        f"optc runs on Linux and on macOS of Apple silicon, and this is {name}",
        hint="use a container, a virtual machine or, on Windows, WSL 2",
    )
