"""The tiles of AMX, which Linux grants to a process that asks for them (from 5.16 on)."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

#: Features of tiles (Linux's names).
TILE_FEATURES = frozenset({"amx_tile", "amx_int8", "amx_bf16"})
#: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux's Documentation/arch/x86/xstate.rst.
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@cache
def tiles_refusal() -> str:
    """Ask the system for tiles, for all threads of this process and those that it forks.

    Returns:
        Empty if it grants them, else the system's reason. Without it, the first instruction of a
        tile ends the process.
    """
    if platform.machine() != "x86_64":
        return "no processor of x86_64"
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0:
        return ""
    return os.strerror(ctypes.get_errno())
