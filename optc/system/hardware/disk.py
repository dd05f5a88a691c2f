"""The rate at which this machine reads a file from its disk, past the page cache."""

from __future__ import annotations

import mmap
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Bytes of one read, as large as what engines ask for at once.
_READ = 4 << 20
#: Smaller files say little of a disk.
_LEAST = 64 << 20
#: Readers at once: some disks are fastest with one, others with several.
_READERS = (1, 4)


def read_rates(path: Path, seconds: float = 0.25) -> list[float]:
    """Bytes/s of reads at random places of a file, one sample for each number of readers.

    The file is read with O_DIRECT, so that nothing of it comes from the page cache or gets there.

    Args:
        path: Of a large file.
        seconds: Time of each sample.

    Returns:
        Empty where the file is small, or its file system or the system has no such reads.
    """
    direct = getattr(os, "O_DIRECT", 0)
    try:
        if not direct or path.stat().st_size < _LEAST:
            return []
        descriptor = os.open(path, os.O_RDONLY | direct)
    except OSError:
        return []
    try:
        return [_rate(descriptor, readers, seconds) for readers in _READERS]
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _rate(descriptor: int, readers: int, seconds: float) -> float:
    places = os.fstat(descriptor).st_size // _READ
    began = time.perf_counter()

    def read(seed: int) -> int:
        draw, done = random.Random(seed), 0
        with mmap.mmap(-1, _READ) as memory:  # aligned, as O_DIRECT wants it
            while not done or time.perf_counter() - began < seconds:
                done += os.preadv(descriptor, [memory], draw.randrange(places) * _READ)
        return done

    with ThreadPoolExecutor(readers, "optc-disk") as threads:
        total = sum(threads.map(read, range(readers)))
    return total / (time.perf_counter() - began)
