"""Pages of a file that is mapped privately: kept in memory, let go, or read ahead.

A page that stays is written by the process, which gives it a copy of its own. Such memory is not
given up for other files, and needs no right to lock memory. Letting go drops the copy, so that the
next access finds the file's page: contents are the same at any time, also for a kernel that reads
meanwhile.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from optc.errors import UnavailableError
from optc.system.hardware.platforms import MACOS, this_system

#: Linux 5.14 and later: a write fault for every page, without a write.
_MADV_POPULATE_WRITE = 23
_MADV_DONTNEED = 4
#: Bytes of one request to read ahead; between them other requests get their turn.
_REQUEST = 8 << 20


@dataclass(frozen=True)
class Mapped:
    """A file that is mapped privately and writable.

    Attributes:
        descriptor: Of the file, open for reading.
        address: Of its first byte.
    """

    descriptor: int
    address: int

    def read_ahead(self, start: int, size: int) -> None:
        """Ask the system to read these bytes now; returns before they are there."""
        for at in range(start, start + size, _REQUEST):
            length = min(_REQUEST, start + size - at)
            os.posix_fadvise(self.descriptor, at, length, os.POSIX_FADV_WILLNEED)

    def keep(self, start: int, size: int) -> None:
        """Give the process a copy of whole pages, and drop what the page cache has of them.

        Raises:
            OSError: There is no memory for it, or the kernel is too old.
        """
        self._advise(start, size, _MADV_POPULATE_WRITE)
        os.posix_fadvise(self.descriptor, start, size, os.POSIX_FADV_DONTNEED)

    def let_go(self, start: int, size: int) -> None:
        """Drop the process's copy of whole pages."""
        self._advise(start, size, _MADV_DONTNEED)

    def _advise(self, start: int, size: int, advice: int) -> None:
        """``madvise`` of ctypes, which leaves Python's lock; that of `mmap.mmap` does not."""
        place = ctypes.c_void_p(self.address + start)
        if _libc().madvise(place, ctypes.c_size_t(size), ctypes.c_int(advice)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def check_system(files: Sequence[Mapped]) -> None:
    """Check that the system can keep pages of mapped files.

    Raises:
        UnavailableError: It cannot; says why.
    """
    if this_system() == MACOS:
        raise _cannot("on macOS that is not written yet")
    for file in files:
        try:
            file.keep(0, mmap.PAGESIZE)
            file.let_go(0, mmap.PAGESIZE)
        except OSError as error:
            raise _cannot(_reason(error.errno or 0)) from error


def _cannot(reason: str) -> UnavailableError:
    return UnavailableError(
        f"the system cannot keep a part of the weights in memory: {reason}",
        where="resident_memory",
        hint="load without resident_memory, which maps all weights",
    )


def _reason(number: int) -> str:
    if number == errno.EINVAL:
        return "its kernel is older than Linux 5.14"
    return os.strerror(number)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
