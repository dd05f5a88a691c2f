"""Peaks of memory: a process's own, not of what started it."""

from __future__ import annotations

import subprocess
import sys

CHILD = "from optc.process_memory import own_peak_bytes; print(own_peak_bytes())"
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
