"""Exchange of two folders in one step, so that no moment exists with neither in place."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(a: Path, b: Path) -> None:
    """Swap two paths: by Linux's renameat2 where the file system can, else by three renames.

    Raises:
        OSError: Neither way worked; both paths are as before.
    """
    if not _renameat2(a, b):
        _swap_by_renames(a, b)


def _renameat2(a: Path, b: Path) -> bool:
    libc = ctypes.CDLL(None)
    call = getattr(libc, "renameat2", None)
    if call is None:
        return False
    status = call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE)
    return bool(status == 0)


def _swap_by_renames(a: Path, b: Path) -> None:
    aside = b.with_name(f".{b.name}.aside-{os.getpid()}")
    b.rename(aside)
    try:
        a.rename(b)
    except OSError:
        aside.rename(b)
        raise
    aside.rename(a)
