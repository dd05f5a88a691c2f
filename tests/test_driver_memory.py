"""Peak memory over processes, its limit, and the prediction that refuses a compile up front."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from optc.driver.limits import check_memory, predicted_bytes, weight_bytes, weight_count
from optc.driver.memory import PeakMemory, anonymous_bytes, parse_bytes, process_tree, tree_bytes
from optc.errors import InputError
from tests.models import Dense, dense_model

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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("3GB", 3 * 10**9),
        ("2.5GiB", 5 << 29),
        ("512m", 512 * 10**6),
        ("1 KiB", 1024),
        ("7", 7),
        ("1T", 10**12),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text, "--max-ram") == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "three", "1XB", "nan", "1e999"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        parse_bytes(text, "--max-ram")


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


def test_an_interrupt_within_the_limit_stays_an_interrupt() -> None:
    def interrupt() -> None:
        with PeakMemory(1 << 60):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_weights_are_counted() -> None:
    shape = Dense(vocab=61, hidden=32, tied=True)
    model, wider = dense_model(shape), dense_model(dataclasses.replace(shape, vocab=62))
    assert weight_count(wider) - weight_count(model) == 2 * 32  # embedding and head
    assert weight_bytes(wider) - weight_bytes(model) == 2 * 4 * 32


def test_a_compile_that_cannot_fit_is_refused_with_the_figure() -> None:
    model = dense_model(Dense())
    needed = predicted_bytes(model, 10**9, gated=True)
    assert needed > 10**9
    check_memory(model, 10**9, 0, gated=True)  # no limit
    check_memory(model, 10**9, needed, gated=True)
    with pytest.raises(InputError) as caught:
        check_memory(model, 10**9, needed - 1, gated=True)
    assert f"predicted to need {needed:,} bytes" in caught.value.message
    assert caught.value.hint == "allow more"  # the compiler is what needs most


def test_a_compile_that_fits_but_for_tuning_says_so() -> None:
    model = dense_model(Dense())
    needed = predicted_bytes(model, 0, gated=False, tuned=True)
    check_memory(model, 0, needed, gated=False, tuned=True)
    check_memory(model, 0, needed - 1, gated=False)
    with pytest.raises(InputError) as caught:
        check_memory(model, 0, needed - 1, gated=False, tuned=True)
    assert f"predicted to need {needed:,} bytes" in caught.value.message
    assert caught.value.hint == "allow more, or leave --tune out"


def test_the_prediction_follows_the_largest_layer_not_the_depth() -> None:
    small = predicted_bytes(dense_model(Dense(windows=(0,))), 0, gated=True)
    deep = predicted_bytes(dense_model(Dense(windows=(0,) * 4)), 0, gated=True)
    assert deep == small
