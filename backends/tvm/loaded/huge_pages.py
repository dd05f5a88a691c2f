"""Large files and arrays in huge pages, which are read faster: fewer misses in the translation
buffers, and prefetching across small pages (docs/adr/0014-weights-are-mapped-pages-of-the-file.md).

A file has to be written so that the page cache holds it in huge pages.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.system.hardware.platforms import MACOS, this_system

#: Huge page of x86-64, and of Arm with pages of 4 KiB.
HUGE_PAGE = 2 << 20
#: Linux 5.14 and later; the standard library has no name for it.
_MADV_POPULATE_READ = 22
_ZEROS = np.zeros(HUGE_PAGE, np.uint8)


class HugePageWriter:
    """Writes a file so that the page cache holds it in huge pages, where the file system can
    (ext4, XFS and btrfs of recent kernels).

    The first write into a piece of a file decides the size of its pages, so that is one of a whole,
    aligned huge page. Otherwise the file would lie in pages as small as what is written at once,
    until memory runs short and it is read from the disk again.

    Args:
        descriptor: Of the empty file, open for writing.
        total: Bytes that it will have.
    """

    def __init__(self, descriptor: int, total: int) -> None:
        self._descriptor, self._total = descriptor, total
        self._untouched = set(range(-(-total // HUGE_PAGE)))
        os.ftruncate(descriptor, total)

    def write(self, array: npt.NDArray[Any], position: int) -> int:
        """Write ``array`` at ``position``; returns its bytes."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        touched = range(position // HUGE_PAGE, -(-(position + data.size) // HUGE_PAGE))
        for page in self._untouched.intersection(touched):
            start = page * HUGE_PAGE
            self._write(_ZEROS[: self._total - start], start)
        self._untouched.difference_update(touched)
        self._write(data, position)
        return data.size

    def _write(self, data: npt.NDArray[np.uint8], position: int) -> None:
        written = 0
        while written < data.size:
            written += os.pwrite(self._descriptor, data[written:].data, position + written)


def map_now(mapping: mmap.mmap) -> None:
    """Map a file by huge pages, and all of it now: by page faults it takes longer, and the first
    requests would wait for it. macOS, which has no huge pages of files, is asked to read it."""
    if this_system() == MACOS:
        _advise(mapping, mmap.MADV_WILLNEED)
        return
    _advise(mapping, mmap.MADV_HUGEPAGE)
    _advise(mapping, _MADV_POPULATE_READ)


def anonymous(size: int) -> mmap.mmap:
    """Zeroed memory of this process in huge pages, which the system hands out on first write; on
    macOS in its usual pages of 16 KiB."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if this_system() != MACOS:
        _advise(mapping, mmap.MADV_HUGEPAGE)
    return mapping


def _advise(mapping: mmap.mmap, advice: int) -> None:
    """A kernel that does not know the advice does without."""
    try:
        mapping.madvise(advice)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
