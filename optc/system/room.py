"""Room for files of arrays: given before it is used, and missed by one error that says where.

A mapped file that finds no room on its disk ends its process (SIGBUS), and NumPy's own ways of
writing fail without the number of the error.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from optc.system.full_disk import on_disk_of

Array = npt.NDArray[Any]
#: What a file system answers that cannot give room before.
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def give_room(descriptor: int, offset: int, size: int) -> None:
    """Let a file have room for ``size`` bytes at ``offset``; it grows where it is shorter.

    Raises:
        OSError: There is none.
    """
    allocate = getattr(os, "posix_fallocate", None)  # macOS has none
    try:
        if allocate is not None:
            allocate(descriptor, offset, size)
            return
    except OSError as error:
        if error.errno not in _CANNOT:
            raise OSError(error.errno, os.strerror(error.errno or 0)) from error
    os.ftruncate(descriptor, max(os.fstat(descriptor).st_size, offset + size))


def mapped_array(path: Path, shape: tuple[int, ...], kind: npt.DTypeLike) -> Array:
    """A new file as an array of zeros.

    Raises:
        OSError: The disk has no room for it; names the file.
    """
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    with on_disk_of(path), path.open("wb") as file:
        give_room(file.fileno(), 0, size)
    return np.memmap(path, kind, "r+", shape=shape)


def save_array(path: Path, array: Array) -> None:
    """As ``numpy.save``, whose errors have no number.

    Raises:
        OSError: It cannot be written; names the file.
    """
    with on_disk_of(path), path.open("wb") as file:
        np.save(_Written(file), array)


class _Written:
    """A file that NumPy writes to by ``write`` alone."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def write_array(file: BinaryIO, array: Array) -> None:
    """Write the bytes of an array, in order, whatever its type.

    Raises:
        OSError: With its number, which ``ndarray.tofile`` leaves out.
    """
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
