"""Pages of a mapped file that are kept, let go and read ahead."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from optc.backends.tvm.streamed import moving
from optc.backends.tvm.streamed.moving import Mapped, check_system
from optc.errors import UnavailableError

PAGE = mmap.PAGESIZE
PAGES = 16


@pytest.fixture
def contents() -> bytes:
    return np.random.default_rng(0).integers(0, 256, PAGES * PAGE, np.uint8).tobytes()


@pytest.fixture
def opened(tmp_path: Path, contents: bytes) -> Iterator[tuple[Mapped, mmap.mmap]]:
    path = tmp_path / "file"
    path.write_bytes(contents)
    descriptor = os.open(path, os.O_RDONLY)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    mapping = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=both)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    yield Mapped(descriptor, address), mapping
    mapping.close()
    os.close(descriptor)


def anonymous_pages(file: Mapped) -> int:
    """Of the mapping, those that are the process's own."""
    for entry in Path("/proc/self/smaps").read_text().split("VmFlags"):
        lines = entry.strip().splitlines()
        if any(line.startswith(f"{file.address:x}-") for line in lines):
            (line,) = (line for line in lines if line.startswith("Anonymous:"))
            return int(line.split()[1]) * 1024 // PAGE
    raise AssertionError("the mapping is not listed")


def test_kept_pages_are_the_process_own_until_they_are_let_go(
    opened: tuple[Mapped, mmap.mmap], contents: bytes
) -> None:
    file, mapping = opened
    assert mapping[:] == contents
    assert anonymous_pages(file) == 0
    file.keep(2 * PAGE, 5 * PAGE)
    assert anonymous_pages(file) == 5
    assert mapping[:] == contents
    file.let_go(3 * PAGE, 2 * PAGE)
    assert anonymous_pages(file) == 3
    assert mapping[:] == contents


def test_the_file_is_not_written(
    tmp_path: Path, opened: tuple[Mapped, mmap.mmap], contents: bytes
) -> None:
    file, mapping = opened
    file.keep(0, PAGE)
    mapping[0] ^= 255
    assert (tmp_path / "file").read_bytes() == contents


def test_large_ranges_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def fadvise(descriptor: int, start: int, size: int, advice: int) -> None:
        assert (descriptor, advice) == (7, os.POSIX_FADV_WILLNEED)
        asked.append((start, size))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    monkeypatch.setattr(moving, "_REQUEST", 100)
    Mapped(7, 0).read_ahead(1000, 250)
    assert asked == [(1000, 100), (1100, 100), (1200, 50)]


def test_read_ahead_brings_pages_into_memory(opened: tuple[Mapped, mmap.mmap]) -> None:
    file, _ = opened
    os.fsync(file.descriptor)
    file.read_ahead(0, PAGES * PAGE)  # of what may be there already


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EINVAL, "its kernel is older than Linux 5.14"), (errno.ENOMEM, "Cannot allocate")],
)
def test_a_system_that_cannot_keep_pages_says_why(
    monkeypatch: pytest.MonkeyPatch,
    opened: tuple[Mapped, mmap.mmap],
    number: int,
    said: str,
) -> None:
    check_system([opened[0]])

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Mapped, "_advise", refuse)
    with pytest.raises(UnavailableError, match=said) as raised:
        check_system([opened[0]])
    assert raised.value.where == "resident_memory"


def test_ranges_outside_of_the_mapping_are_refused(opened: tuple[Mapped, mmap.mmap]) -> None:
    file, _ = opened
    with pytest.raises(OSError, match="Invalid argument"):
        file.keep(1, PAGE)  # no whole page
