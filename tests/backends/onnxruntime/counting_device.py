"""A CUDA device that is not there: the host's memory, and how many bytes were moved."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from optc.system.hardware.cuda_device import Array, Graph


class CountingDevice:
    """`optc.system.hardware.cuda_device.Device`; what is copied lies there only after `wait`.

    Attributes:
        taken: Allocations by address, filled with what is not a number.
        up, down, across: Bytes that were moved to the device, to the host, within the device.
    """

    stream = 0

    def __init__(self) -> None:
        self.taken: dict[int, Any] = {}
        self.up = self.down = self.across = 0
        self._started: list[Callable[[], None]] = []

    def allocate(self, size: int) -> int:
        memory = np.full(size, 0xFF, np.uint8)
        self.taken[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def free(self, address: int) -> None:
        del self.taken[address]

    def clear(self, address: int, size: int) -> None:
        self._at(address, size)
        self._started.append(lambda: _void(ctypes.memset(address, 0, size)))

    def upload(self, address: int, array: Array) -> None:
        assert array.flags.c_contiguous
        self.up += array.nbytes
        self._move(self._at(address, array.nbytes), array.ctypes.data, array.nbytes)

    def download(self, array: Array, address: int) -> None:
        assert array.flags.c_contiguous
        self.down += array.nbytes
        self._move(array.ctypes.data, self._at(address, array.nbytes), array.nbytes)

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        assert width <= pitch < 1 << 31
        self.across += width * rows
        for offset in range(0, rows * pitch, pitch):
            to, of = (self._at(address + offset, width) for address in (target, source))
            assert abs(to - of) >= width, "the driver does not copy what overlaps"
            self._move(to, of, width)

    def wait(self) -> None:
        for work in self._started:
            work()
        self._started.clear()

    def capture(self, work: Callable[[], None]) -> Graph:
        raise AssertionError("nothing is captured here")

    def close(self) -> None:
        raise AssertionError("engines share the device")

    def _at(self, address: int, size: int) -> int:
        inside = (a <= address and address + size <= a + m.size for a, m in self.taken.items())
        assert any(inside), f"{size} bytes at {address} were not allocated"
        return address

    def _move(self, target: int, source: int, size: int) -> None:
        self._started.append(lambda: _void(ctypes.memmove(target, source, size)))


def _void(_: Any) -> None:
    pass
