"""Peak memory over processes, and its limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from optc.compiling.resolving.memory import PeakMemory, anonymous_bytes, process_tree, tree_bytes
from optc.errors import InputError

MEBIBYTE = 1 << 20
FORK = """
import os
block = bytearray(b'x' * (100 << 20))
read, write = os.pipe()
if not os.fork():
    os.read(read, 1)
    os._exit(0)
print('ready', flush=True)
input()
os.write(write, b'x')
os.wait()
"""
HOLD = "import sys; block = bytearray(b'x' * (100 << 20)); print('ready', flush=True); input()"


def test_children_are_counted_and_gone_ones_are_not() -> None:
    with PeakMemory() as memory:
        before = memory.sample()
        command = [sys.executable, "-c", HOLD]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            assert child.pid in process_tree(os.getpid())
            assert anonymous_bytes(child.pid) > 100 * MEBIBYTE
            during = memory.sample()
            child.communicate("\n")
        assert during - before > 90 * MEBIBYTE
        assert memory.sample() < during - 90 * MEBIBYTE
    assert memory.peak_bytes >= during
    assert anonymous_bytes(child.pid) == 0


def test_a_child_that_runs_no_program_yet_is_counted_with_its_parent() -> None:
    before = tree_bytes(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert len(process_tree(child.pid)) == 2
        assert 100 * MEBIBYTE < tree_bytes(os.getpid()) - before < 150 * MEBIBYTE
        child.communicate("\n")


def test_more_than_the_limit_stops_the_work() -> None:
    def take_too_much() -> None:
        with PeakMemory(anonymous_bytes(os.getpid()) + 50 * MEBIBYTE):
            block = bytearray(b"x" * (200 * MEBIBYTE))
            time.sleep(20)
            assert block  # not reached

    with pytest.raises(InputError, match=r"the compile took [\d,]+ bytes") as caught:
        take_too_much()
    assert caught.value.where == "--max-ram"


@pytest.mark.parametrize(
    ("foretold", "hint"),
    [(0, "a fifth beyond what 'optc plan' predicts"), (5 << 50, "5242880.0 GiB are predicted")],
)
def test_the_error_says_how_much_is_needed(foretold: int, hint: str) -> None:
    def end() -> None:
        with PeakMemory(1 << 50) as memory:
            memory.foretold_bytes = foretold
            memory.peak_bytes = 2 << 50

    with pytest.raises(InputError) as caught:
        end()
    assert hint in caught.value.hint


def test_an_interrupt_within_the_limit_stays_an_interrupt() -> None:
    def interrupt() -> None:
        with PeakMemory(1 << 60):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
