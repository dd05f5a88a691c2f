"""Both stores hold the most recently used blocks, within their bytes, and lose none by mistake."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.runtime.spill.stores import Bytes, FileStore, HostStore, SpillWarning, Store

TEMPORARY = Path(tempfile.gettempdir())


def test_a_file_that_cannot_be_written_loses_blocks_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    store = FileStore(tmp_path, 1 << 20)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(SpillWarning, match="No space left") as caught:
        store.put((0, b"a"), np.zeros(8, np.uint8))
    assert caught[0].filename == __file__, "it points at who stores"
    assert len(store) == 0
    monkeypatch.undo()
    store.put((0, b"a"), np.ones(8, np.uint8))
    assert store.get((0, b"a")) is not None


def bytes_of(number: int, size: int) -> Bytes:
    return np.full(size, number % 251, np.uint8)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    actions=st.lists(
        st.tuples(st.sampled_from("pgt"), st.integers(0, 6)), min_size=20, max_size=60
    ),
    capacity=st.integers(0, 40),
    make=st.sampled_from([HostStore, lambda n: FileStore(TEMPORARY, n)]),
)
def test_stores_hold_the_most_recently_used(
    actions: list[tuple[str, int]], capacity: int, make: Callable[[int], Store]
) -> None:
    """Blocks of one size behave as a list that is cut at its capacity."""
    store, plain = make(capacity), list[int]()
    for number, (action, name) in enumerate(actions):
        key = (0, bytes([name]))
        if action == "p":
            store.put(key, bytes_of(name, 8))
            plain = [*(n for n in plain if n != name), name]
            plain = plain[-(capacity // 8) :] if capacity >= 8 else []
        elif action == "g":
            data = store.get(key)
            assert (data is not None) == (name in plain), number
            if data is not None:
                assert data.tolist() == [name] * 8
                plain = [*(n for n in plain if n != name), name]
        elif key in store:
            store.touch(key)
            plain = [*(n for n in plain if n != name), name]
        assert [n for n in range(7) if (0, bytes([n])) in store] == sorted(plain), number
        assert len(store) == len(plain)
    store.close()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 30), max_size=40), capacity=st.integers(1, 60))
def test_files_hold_blocks_of_any_size_within_their_capacity(
    sizes: list[int], capacity: int
) -> None:
    store = FileStore(TEMPORARY, capacity)
    for number, size in enumerate(sizes):
        store.put((0, bytes([number])), bytes_of(number, size))
        for other in range(number + 1):
            data = store.get((0, bytes([other])))
            if data is not None:
                assert data.tolist() == bytes_of(other, sizes[other]).tolist()
        assert os.fstat(store.descriptor).st_size <= capacity
        assert ((0, bytes([number])) in store) == (size <= capacity)
    store.close()


@pytest.mark.parametrize("make", [HostStore, lambda capacity: FileStore(TEMPORARY, capacity)])
def test_a_block_is_a_copy_and_its_second_one_replaces_it(make: Callable[[int], Store]) -> None:
    store, data = make(16), np.array([1, 2, 3, 4], np.uint8)
    store.put((0, b"a"), data)
    data[:] = 9
    found = store.get((0, b"a"))
    assert found is not None
    assert found.tolist() == [1, 2, 3, 4]
    assert store.get((1, b"a")) is None, "another group's"
    store.put((0, b"a"), data)
    store.put((0, b"a"), np.ones(16, np.uint8))
    assert len(store) == 1
    store.put((0, b"b"), np.ones(1, np.uint8))
    assert (0, b"a") not in store, "16 and 1 are more than 16"
    store.close()


def test_a_memory_store_is_empty_when_it_is_closed() -> None:
    store = HostStore(8)
    store.put((0, b"a"), np.ones(8, np.uint8))
    store.close()
    assert len(store) == 0
    store.put((0, b"b"), np.ones(8, np.uint8))
    assert (0, b"b") in store


def test_a_block_that_is_written_in_part_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(TEMPORARY, 64)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, data, offset: len(data) - 1)
        store.put((0, b"a"), np.ones(8, np.uint8))
    assert (0, b"a") not in store
    store.put((0, b"b"), np.ones(8, np.uint8))
    assert os.fstat(store.descriptor).st_size == 8, "its room is used again"
    store.close()


def test_a_damaged_block_is_forgotten_and_its_room_used_again() -> None:
    store = FileStore(TEMPORARY, 64)
    store.put((0, b"a"), np.ones(8, np.uint8))
    os.pwrite(store.descriptor, b"x", 3)
    with pytest.warns(SpillWarning, match="^a spilled block is damaged$") as caught:
        assert store.get((0, b"a")) is None
    assert caught[0].filename == __file__, "it points at who reads"
    assert len(store) == 0
    store.put((0, b"b"), np.ones(8, np.uint8))
    assert os.fstat(store.descriptor).st_size == 8
    store.close()


def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        FileStore(tmp_path / "none", 64)
    where = f"prefix_spill {tmp_path / 'none'}"
    assert str(caught.value) == (
        f"{where}: no file can be made: No such file or directory "
        "(name a folder that exists and can be written)"
    )


def test_a_closed_memory_store_has_all_its_room_again() -> None:
    store = HostStore(16)
    store.put((0, b"a"), np.zeros(16, np.uint8))
    store.close()
    store.put((0, b"b"), np.zeros(16, np.uint8))
    assert len(store) == 1


def test_a_closed_file_store_has_no_blocks(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1 << 12)
    store.put((0, b"a"), np.zeros(16, np.uint8))
    assert len(store) == 1
    store.close()
    assert len(store) == 0
