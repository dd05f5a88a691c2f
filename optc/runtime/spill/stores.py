"""Bounded stores of KV blocks: `HostStore` in memory, `FileStore` in an unnamed file.

Both forget the least recently used block where another needs its room.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from optc.errors import InputError

Bytes = npt.NDArray[np.uint8]
#: KV group, and digest of a prefix.
Key = tuple[int, bytes]


class SpillWarning(UserWarning):
    """Spilled blocks were lost; they are computed again."""


class Store(Protocol):
    """Blocks by key."""

    def __contains__(self, key: Key) -> bool: ...

    def __len__(self) -> int: ...

    def touch(self, key: Key) -> None:
        """Make a block the most recently used one."""
        ...

    def put(self, key: Key, data: Bytes) -> None:
        """Store a block [n]; without effect where it exceeds the whole store."""
        ...

    def get(self, key: Key) -> Bytes | None:
        """The block [n], used most recently from now on; None if it is not there or damaged."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class HostStore:
    """Blocks in memory.

    Args:
        capacity: Most bytes of all blocks.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._bytes = 0
        self._blocks: OrderedDict[Key, Bytes] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def touch(self, key: Key) -> None:
        """Make a block the most recently used one."""
        self._blocks.move_to_end(key)

    def put(self, key: Key, data: Bytes) -> None:
        """Store a block."""
        if key in self._blocks:
            self._bytes -= self._blocks.pop(key).nbytes
        if data.nbytes > self._capacity:
            return
        while self._bytes + data.nbytes > self._capacity:
            self._bytes -= self._blocks.popitem(last=False)[1].nbytes
        self._blocks[key] = data.copy()
        self._bytes += data.nbytes

    def get(self, key: Key) -> Bytes | None:
        """The block."""
        if key in self._blocks:
            self._blocks.move_to_end(key)
        return self._blocks.get(key)

    def close(self) -> None:
        """Drop all blocks."""
        self._blocks.clear()
        self._bytes = 0


class _Place(NamedTuple):
    offset: int
    size: int
    checksum: bytes


class FileStore:
    """Blocks in a file without a name, which is gone with the process, checked when they are read.

    Args:
        folder: Where the file's file system is.
        capacity: Most bytes of all blocks.

    Raises:
        InputError: No file can be made there.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._capacity = capacity
        self._end = 0
        self._free: dict[int, list[int]] = {}  # offsets by size of the block
        self._places: OrderedDict[Key, _Place] = OrderedDict()
        try:
            # `close` closes it.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InputError(
                f"no file can be made: {error.strerror}",
                where=f"prefix_spill {folder}",
                hint="name a folder that exists and can be written",
            ) from error

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._file.fileno()

    def touch(self, key: Key) -> None:
        """Make a block the most recently used one."""
        self._places.move_to_end(key)

    def put(self, key: Key, data: Bytes) -> None:
        """Store a block; warns, and forgets it, where the file cannot be written."""
        if key in self._places:
            self._forget(key)
        offset = self._room(data.nbytes)
        if offset is None:
            return
        try:
            written = os.pwrite(self.descriptor, data.data, offset)
        except OSError as error:
            warnings.warn(f"spilled blocks are lost: {error}", SpillWarning, stacklevel=2)
            written = -1
        if written == data.nbytes:
            self._places[key] = _Place(offset, data.nbytes, _checksum(data))
        else:
            self._free.setdefault(data.nbytes, []).append(offset)

    def get(self, key: Key) -> Bytes | None:
        """The block; warns, and forgets it, where it is not what was written."""
        place = self._places.get(key)
        if place is None:
            return None
        data = np.frombuffer(os.pread(self.descriptor, place.size, place.offset), np.uint8)
        if _checksum(data) != place.checksum:
            warnings.warn("a spilled block is damaged", SpillWarning, stacklevel=2)
            self._forget(key)
            return None
        self._places.move_to_end(key)
        return data

    def close(self) -> None:
        """Close the file, which removes it."""
        self._places.clear()
        self._file.close()

    def _room(self, size: int) -> int | None:
        """An offset with room for ``size`` bytes; None where the whole store is too small."""
        if size > self._capacity:
            return None
        while not self._free.get(size) and self._end + size > self._capacity:
            if not self._places:  # the free room is of blocks of another size
                self._free.clear()
                self._end = 0
            else:
                self._forget(next(iter(self._places)))
        if self._free.get(size):
            return self._free[size].pop()
        self._end += size
        return self._end - size

    def _forget(self, key: Key) -> None:
        place = self._places.pop(key)
        self._free.setdefault(place.size, []).append(place.offset)


def _checksum(data: Bytes) -> bytes:
    return hashlib.blake2b(data.data, digest_size=8).digest()
