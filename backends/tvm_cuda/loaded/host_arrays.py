"""Arrays in host memory that CUDA has pinned, which the device writes at the pace of the bus: into
other memory it copies through a small buffer of the driver's, several times as slowly."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import Any

import numpy as np

from optc.backends.tvm_cuda.loaded.device import Device
from optc.runtime.executable.executable import Float32

#: Arrays that are kept for later; more than a caller holds at once are not needed.
_KEPT = 2


class HostArrays:
    """float32 arrays [rows, width]. One that nobody holds any longer is given out again. Take them
    in one thread; they may be let go in any.

    Args:
        device: It writes them.
        width: Of a row.
        most_rows: No array has more.
    """

    def __init__(self, device: Device, width: int, most_rows: int) -> None:
        self._device = device
        self._width = width
        self._most_rows = most_rows
        self._free: list[tuple[int, Any]] = []  # rows, memory; the smallest first
        self._let_go: deque[tuple[int, Any]] = deque()  # by any thread, at any time

    def take(self, rows: int) -> Float32:
        """An array [rows, width] of undefined contents."""
        if not rows:
            return np.empty((0, self._width), np.float32)
        kept = self._memory(rows)
        memory = (ctypes.c_float * (rows * self._width)).from_address(kept[1].data_ptr())
        weakref.finalize(memory, self._let_go.append, kept)
        return np.ctypeslib.as_array(memory).reshape(rows, self._width)

    def _memory(self, rows: int) -> tuple[int, Any]:
        while self._let_go:
            self._free.append(self._let_go.popleft())
        self._free.sort(key=lambda kept: kept[0])
        del self._free[:-_KEPT]
        for index, (room, _) in enumerate(self._free):
            if room >= rows:
                return self._free.pop(index)
        room = min(1 << (rows - 1).bit_length(), self._most_rows)
        tensor, _ = self._device.pinned(room * self._width)  # words of four bytes
        return room, tensor
