"""What the C library does with freed memory; only glibc's is told, others are left alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def give_back_freed() -> None:
    """Return freed memory to the system: whole pages of it, which glibc would keep for later."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
