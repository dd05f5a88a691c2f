"""Arrays for results in pinned memory: reused, but never while somebody holds them."""

from __future__ import annotations

import ctypes
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optc.backends.tvm_cuda.loaded.host_arrays import HostArrays


class Memory:
    """Host memory as a tensor of the device's."""

    def __init__(self, count: int) -> None:
        self.words = (ctypes.c_int32 * count)()

    def data_ptr(self) -> int:
        """Where it is."""
        return ctypes.addressof(self.words)


class FakeDevice:
    """Pins nothing; counts."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def pinned(self, count: int) -> tuple[Any, Any]:
        """New memory."""
        self.sizes.append(count)
        return Memory(count), None


def arrays(device: FakeDevice, width: int = 3, most: int = 10) -> HostArrays:
    stands_in: Any = device
    return HostArrays(stands_in, width, most)


def test_what_nobody_holds_is_given_out_again() -> None:
    device = FakeDevice()
    host = arrays(device)
    for rows in (3, 4, 1, 4):
        array = host.take(rows)
        assert array.shape == (rows, 3)
        array[:] = 7
        del array
    assert device.sizes == [12]  # four rows, as numbers of rows go up by powers of two


def test_a_view_keeps_the_memory() -> None:
    device = FakeDevice()
    host = arrays(device)
    row = host.take(2)[1]
    row[:] = 5
    host.take(2)[:] = 1
    assert row.tolist() == [5, 5, 5]
    assert len(device.sizes) == 2


def test_no_rows_take_no_memory_and_none_has_more_than_the_most() -> None:
    device = FakeDevice()
    host = arrays(device)
    assert host.take(0).shape == (0, 3)
    assert host.take(9).shape == (9, 3)
    assert device.sizes == [30]


def test_arrays_may_be_let_go_in_other_threads_while_one_takes() -> None:
    device = FakeDevice()
    host = arrays(device)
    queue: SimpleQueue[Any] = SimpleQueue()
    wrong: list[int] = []

    def look() -> None:
        while (item := queue.get()) is not None:
            number, values = item
            if not (values == number).all():
                wrong.append(number)
            del item, values

    readers = [Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(600):
        array = host.take(1 + number % 7)
        array[:] = number
        queue.put((number, array))
        del array
    for _ in readers:
        queue.put(None)
    for reader in readers:
        reader.join()
    assert not wrong
    host.take(1)
    assert len(host._free) <= 2


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, 5)), max_size=40))
def test_held_arrays_keep_what_was_written(steps: list[tuple[int, int]]) -> None:
    """Random takes and drops: no held array is overwritten, whatever is given back meanwhile."""
    device, held = FakeDevice(), dict[int, Any]()
    host = arrays(device)
    for number, (rows, drop) in enumerate(steps):
        array = host.take(rows)
        array[:] = number
        held[number] = array
        del array
        if drop in held:
            del held[drop]
        for kept, values in held.items():
            np.testing.assert_array_equal(values, kept)
