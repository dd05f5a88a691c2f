from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.kv.kv_blocks import BlockTables, KVBlocks, blocks_needed


@dataclass
class Holder:
    tables: BlockTables


def test_a_fork_copies_whole_blocks_of_states() -> None:
    blocks = KVBlocks((0, 2), (9, 9), 4, states=[1])
    source, target = blocks.new_tables(), blocks.new_tables()
    assert blocks.grow(source, 6)
    copies = blocks.fork(source, target, 6)
    assert copies is not None
    assert [(copy.group, copy.tokens) for copy in copies] == [(0, 2), (1, 4)]


def test_growth_is_all_or_nothing_over_the_groups() -> None:
    blocks = KVBlocks((0, 8), (5, 2), 4)
    tables = blocks.new_tables()
    assert blocks.grow(tables, 8)
    assert not blocks.grow(tables, 12)
    assert [len(table) for table in tables.blocks] == [2, 2]
    assert blocks.fits(tables, 8)
    assert not blocks.fits(tables, 9)
    blocks.free(tables)
    blocks.check_integrity([Holder(tables)])
    assert [pool.num_free for pool in blocks.pools] == [5, 2]


def test_blocks_wholly_behind_the_window_are_released() -> None:
    blocks = KVBlocks((0, 5), (9, 9), 4)
    tables = blocks.new_tables()
    blocks.grow(tables, 16)
    # The row at 8 sees 4..8: block 0 (0..3) is behind, block 1 is not.
    blocks.release_behind(tables, 7)
    assert tables.released == [0, 0]
    blocks.release_behind(tables, 8)
    assert tables.released == [0, 1]
    assert tables.blocks[1][0] == -1
    assert blocks.pools[1].num_free == 6
    blocks.check_integrity([Holder(tables)])


def test_blocks_behind_a_length_are_given_back() -> None:
    blocks = KVBlocks((0, 5), (9, 9), 4)
    tables = blocks.new_tables()
    assert not blocks.shrink(tables, 0)
    assert blocks.grow(tables, 21)
    blocks.release_behind(tables, 12)
    kept = [table[:4].tolist() for table in tables.blocks]
    assert blocks.shrink(tables, 13)
    assert [table.tolist() for table in tables.blocks] == kept
    assert blocks.available() == (5, 7)
    assert not blocks.shrink(tables, 13), "nothing is left to give"
    assert not blocks.shrink(tables, 16)
    blocks.free(tables)
    assert blocks.available() == (9, 9)


def test_the_group_of_a_leak_is_named() -> None:
    blocks = KVBlocks((0, 4), (2, 2), 4)
    tables = blocks.new_tables()
    blocks.grow(tables, 4)
    del tables.blocks[1][:]
    with pytest.raises(RuntimeError, match=r"^KV group 1: holders of blocks \[0\] do not match"):
        blocks.check_integrity([Holder(tables)])


@pytest.mark.parametrize(
    ("length", "window", "need"),
    [(0, 0, 0), (1, 0, 1), (8, 0, 2), (9, 0, 3), (9, 5, 3), (99, 1, 2), (99, 5, 3), (99, 6, 3)],
)
def test_blocks_of_four_that_steps_of_three_need(length: int, window: int, need: int) -> None:
    assert blocks_needed(length, 3, window, 4) == need


@given(window=st.integers(1, 20), block_size=st.integers(1, 8), chunk=st.integers(1, 10))
def test_no_less_than_the_stated_need_is_enough(window: int, block_size: int, chunk: int) -> None:
    """Some step of a long request, wherever it begins, needs all of it."""
    held = [
        (start + chunk - 1) // block_size - max(0, start - window + 1) // block_size + 1
        for start in range(window + block_size)
    ]
    length = window + block_size + chunk - 1
    assert max(held) == blocks_needed(length, chunk, window, block_size)


@given(
    window=st.integers(0, 20),
    block_size=st.integers(1, 8),
    chunk=st.integers(1, 10),
    length=st.integers(1, 60),
)
def test_the_stated_need_is_enough(window: int, block_size: int, chunk: int, length: int) -> None:
    """A request alone never holds more than `blocks_needed` and never sees a released block."""
    need = blocks_needed(length, chunk, window, block_size)
    blocks = KVBlocks((window,), (need,), block_size)
    assert blocks.fits_new(blocks.new_tables(), length, chunk)
    tables = blocks.new_tables()
    computed = 0
    while computed < length:
        count = min(chunk, length - computed)
        assert blocks.grow(tables, computed + count)
        oldest = max(0, computed - window + 1) if window else 0
        visible = tables.blocks[0][oldest // block_size :]
        assert -1 not in visible
        computed += count
        blocks.release_behind(tables, computed)
    blocks.check_integrity([Holder(tables)])
