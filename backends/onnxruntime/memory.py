"""Memory of keys and values: the host's, or a CUDA device's. Only what is asked for moves."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.runtime.executable.executable import Int32
from optc.system.hardware.cuda_device import Device

Bytes = npt.NDArray[np.uint8]


class Memory(Protocol):
    """Keys or values of one layer, blocks [n, ...] one after the other. What is started is done
    after `wait`, in order.

    Attributes:
        device: As ONNX Runtime names it: ``cpu`` or ``cuda``.
        shape: Of the whole.
        dtype: Of an element.
    """

    device: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def address(self, block: int) -> int:
        """The start of a block, in the device's addresses."""
        ...

    def read(self, block: int, data: Bytes) -> None:
        """Start to copy a block to the host; ``data`` [bytes of a block] is contiguous."""
        ...

    def write(self, block: int, data: Bytes) -> None:
        """Start to replace a block; ``data`` [bytes of a block] is contiguous."""
        ...

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Start to copy ``rows`` runs of ``width`` bytes that lie ``pitch`` bytes apart; the whole
        is a multiple of ``pitch``.

        Args:
            target: Byte where the first goes; it lies in no run that is read.
            source: Byte where the first is.
            width: At most the rest of ``pitch`` bytes from either on.
            rows: How many.
            pitch: Bytes between them.
        """
        ...

    def wait(self) -> None:
        """Until all copies are done."""
        ...


class HostMemory:
    """Zeroed anonymous pages, which the system hands out on first write."""

    device = "cpu"

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
        self._bytes: Bytes = np.frombuffer(pages, np.uint8)
        self._blocks = self._bytes.reshape(shape[0], -1)
        self.shape, self.dtype = shape, dtype

    def address(self, block: int) -> int:
        """The address of a block."""
        return int(self._blocks.ctypes.data) + block * self._blocks.shape[1]

    def read(self, block: int, data: Bytes) -> None:
        """Copy a block."""
        data[:] = self._blocks[block]

    def write(self, block: int, data: Bytes) -> None:
        """Replace a block."""
        self._blocks[block] = data

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Copy runs in place."""
        table = self._bytes.reshape(-1, pitch)
        (to, place), (of, start) = divmod(target, pitch), divmod(source, pitch)
        table[to : to + rows, place : place + width] = table[of : of + rows, start : start + width]

    def wait(self) -> None:
        """Nothing is left to do."""


class DeviceMemory:
    """Zeroed memory of a device, which it has back when this object goes.

    ONNX Runtime waits for its own stream at the end of a run, and whoever starts copies waits for
    them, so that neither sees the other's work half done.

    Args:
        gpu: Allocates, copies, and orders what it is asked for.
        device: ONNX Runtime's name of it.
        shape: Of the whole.
        dtype: Of an element.

    Raises:
        UnavailableError: The device has no memory left.
    """

    def __init__(
        self, gpu: Device, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self._gpu = gpu
        size = math.prod(shape) * dtype.itemsize
        self._block_bytes = size // shape[0]
        self._start = gpu.allocate(size)
        weakref.finalize(self, gpu.free, self._start).atexit = False  # the process ends anyway
        gpu.clear(self._start, size)
        gpu.wait()

    def address(self, block: int) -> int:
        """The address of a block on the device."""
        return self._start + block * self._block_bytes

    def read(self, block: int, data: Bytes) -> None:
        """Start to copy a block to the host."""
        self._gpu.download(data, self.address(block))

    def write(self, block: int, data: Bytes) -> None:
        """Start to copy a block to the device."""
        self._gpu.upload(self.address(block), data)

    def copy_rows(self, target: int, source: int, width: int, rows: int, pitch: int) -> None:
        """Start to copy runs, on the device."""
        if rows == 1:
            pitch = width  # the driver bounds it, and nothing lies behind
        self._gpu.copy_rows(self._start + target, self._start + source, width, rows, pitch)

    def wait(self) -> None:
        """Until all copies are done."""
        self._gpu.wait()


def read_blocks(memories: Sequence[Memory], blocks: Int32) -> Bytes:
    """Contents [n, bytes] of blocks [n] in all ``memories``, one after the other.

    Raises:
        InputError: There is no such block.
    """
    data = np.empty((len(blocks), sum(map(_block_bytes, memories))), np.uint8)
    for memory, block, part in _parts(memories, blocks, data, "read_blocks"):
        memory.read(block, part)
    _wait(memories)
    return data


def write_blocks(memories: Sequence[Memory], blocks: Int32, data: Bytes) -> None:
    """Replace the contents of blocks [n] by what `read_blocks` gave.

    Raises:
        InputError: There is no such block.
    """
    held = np.ascontiguousarray(data)
    for memory, block, part in _parts(memories, blocks, held, "write_blocks"):
        memory.write(block, part)
    _wait(memories)


def check_inside(numbers: Int32, count: int, what: str, where: str) -> None:
    """Check that addresses made of ``numbers`` will lie in memory that has ``count`` of them.

    Raises:
        InputError: One does not.
    """
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < count):
        raise InputError(f"{what} must lie within 0 and {count - 1}", where=where)


def _parts(
    memories: Sequence[Memory], blocks: Int32, data: Bytes, where: str
) -> Iterator[tuple[Memory, int, Bytes]]:
    start = 0
    for memory in memories:
        check_inside(blocks, memory.shape[0], "blocks", where)
        stop = start + _block_bytes(memory)
        for row, block in zip(data, blocks.tolist(), strict=True):
            yield memory, block, row[start:stop]
        start = stop


def _block_bytes(memory: Memory) -> int:
    return math.prod(memory.shape[1:]) * memory.dtype.itemsize


def _wait(memories: Sequence[Memory]) -> None:
    for memory in memories[:1]:  # all are on one device
        memory.wait()
