"""Peaks of memory are a process's own, not of what started it; freed memory goes back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from optc.system.processes.process_memory import freed_is_kept, give_back_freed

libc = ctypes.CDLL(None)
COUNT, SIZE = 1000, 64 << 10
CHILD = "from optc.system.processes.process_memory import own_peak_bytes; print(own_peak_bytes())"
GROWN = f"held = bytearray(b'1') * (96 << 20); {CHILD}"
PARENT = """
import subprocess, sys
held = bytearray(b"1") * (256 << 20)
print(subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True).stdout)
"""


def peak(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-c", *arguments], capture_output=True, check=True)
    return int(done.stdout)


def test_a_child_does_not_begin_with_the_peak_of_what_started_it() -> None:
    assert peak(CHILD) < 96 << 20
    assert peak(PARENT, CHILD) < 96 << 20
    assert 96 << 20 < peak(PARENT, GROWN) < 256 << 20


def resident() -> int:
    """Bytes of this process's own memory that is resident."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in status if line.startswith("RssAnon")).split()[1])


@pytest.mark.skipif(not hasattr(libc, "malloc_trim"), reason="another C library than glibc")
def test_freed_memory_goes_back_to_the_system() -> None:
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    blocks = [libc.malloc(SIZE) for _ in range(COUNT)]
    last = libc.malloc(SIZE)  # what is in use at the end of the heap holds all before it
    for block in blocks:
        ctypes.memset(block, 1, SIZE)
    for block in blocks:
        libc.free(block)
    before = resident()
    give_back_freed()
    assert before - resident() > COUNT * SIZE * 0.9
    libc.free(last)


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = []

    class Musl:
        def __getattr__(self, name: str) -> None:
            looked_for.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Musl())
    give_back_freed()
    assert looked_for == ["malloc_trim"]


@pytest.mark.skipif(not hasattr(libc, "mallopt"), reason="not glibc")
def test_large_pieces_are_kept_for_the_next_until_they_are_given_back() -> None:
    size = 96 << 20
    before = resident()
    with freed_is_kept():
        libc.free(filled(size))
        assert resident() - before > size // 2
        give_back_freed()
        assert resident() - before < size // 2
        libc.free(filled(size))
    assert resident() - before < size // 2


def filled(size: int) -> ctypes.c_void_p:
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    piece = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    ctypes.memset(piece, 1, size)
    return piece


def test_a_limit_of_addresses_is_known() -> None:
    code = (
        "import resource; from optc.system.processes.process_memory import addresses_left as left; "
        "from optc.system.available import available_memory; assert left() is None; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)); "
        "print(0 < left() < 1 << 31 and available_memory() <= left() + (64 << 20))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"
