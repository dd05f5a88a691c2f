"""Room for values of a text: in memory up to a bound, else in files that are used again."""

from __future__ import annotations

import mmap
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from optc.proof.reference.submodel import Array
from optc.system.full_disk import on_disk_of
from optc.system.room import give_room


class ValueArrays:
    """Gives arrays, and takes their room back when nobody refers to them any more.

    A file keeps its pages when it is used again: a new one would be filled with zeros first.

    Args:
        memory_bytes: Of arrays that lie in memory at once.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._free = memory_bytes
        self._idle: dict[int, list[mmap.mmap]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of any contents."""
        size = dtype.itemsize * int(np.prod(shape))
        if size <= self._free:
            self._free -= size
            array: Array = np.empty(shape, dtype)
            weakref.finalize(array, self._give_back, size)
            return array
        idle = self._idle.setdefault(size, [])
        room = idle.pop() if idle else _mapped(size)
        mapped = np.frombuffer(room, np.uint8)
        weakref.finalize(mapped, idle.append, room)
        return mapped.view(dtype).reshape(shape)

    def _give_back(self, size: int) -> None:
        self._free += size


def _mapped(size: int) -> mmap.mmap:
    """Room in a file that is gone when the last one lets go of it."""
    with tempfile.TemporaryFile(prefix="optc-streams-") as file:
        with on_disk_of(Path(tempfile.gettempdir()) / "optc-streams"):
            give_room(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
