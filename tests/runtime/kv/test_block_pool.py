from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.kv.block_pool import BlockPool


def test_blocks_are_free_when_their_last_holder_goes() -> None:
    pool = BlockPool(3)
    first, second = pool.take(2)
    pool.share(first)
    pool.check_integrity([[first, second], [first]])
    pool.release([first, second])
    assert pool.num_free == 2
    pool.check_integrity([[first]])
    pool.release([first])
    pool.check_integrity([])


def test_misuse_is_refused() -> None:
    pool = BlockPool(2)
    with pytest.raises(ValueError, match=r"^3 blocks wanted, 2 free$"):
        pool.take(3)
    with pytest.raises(ValueError, match=r"^block 0 is free and cannot be shared$"):
        pool.share(0)
    with pytest.raises(ValueError, match=r"^block 1 is free already$"):
        pool.release([1])


def test_kept_blocks_are_cached_while_nobody_holds_them() -> None:
    pool = BlockPool(4)
    first, second, _ = table = pool.take(3)
    pool.keep(first)
    pool.keep(second)
    assert (pool.num_free, pool.num_cached) == (1, 0)
    pool.release(table)
    assert (pool.num_free, pool.num_cached) == (2, 2)
    pool.share(first)
    assert (pool.num_cached, pool.holders(first)) == (1, 1)
    pool.share(first)
    assert (pool.num_cached, pool.holders(first)) == (1, 2)
    pool.check_integrity([[first], [first]], [first, second])
    pool.drop(first)
    pool.drop(second)
    assert (pool.num_free, pool.num_cached) == (3, 0)
    pool.release([first, first])
    assert (pool.num_free, pool.num_cached) == (4, 0)
    pool.check_integrity([])


def test_only_held_blocks_can_be_kept_and_only_kept_ones_dropped() -> None:
    pool = BlockPool(2)
    (block,) = pool.take(1)
    with pytest.raises(ValueError, match=r"^block 0 is not kept$"):
        pool.drop(block)
    pool.keep(block)
    for other in (block, 1):
        with pytest.raises(ValueError, match=rf"^block {other} cannot be kept$"):
            pool.keep(other)
    with pytest.raises(RuntimeError, match=r"^the kept blocks are not those of the prefix cache$"):
        pool.check_integrity([[block]])


def test_a_leak_and_a_double_use_are_found() -> None:
    pool = BlockPool(2)
    block = pool.take(1)
    with pytest.raises(RuntimeError, match=r"^holders of blocks \[0\] do not match the tables$"):
        pool.check_integrity([])
    with pytest.raises(RuntimeError, match=r"^holders of blocks \[0\] do not match"):
        pool.check_integrity([block, block])
    pool._free[:] = block
    with pytest.raises(RuntimeError, match=r"^a block is free and in use at once$"):
        pool.check_integrity([block])
    pool._free[:] = [1, 1]
    with pytest.raises(RuntimeError, match=r"^2 free \+ 1 held \+ 0 cached != 2 blocks$"):
        pool.check_integrity([block])


ACTIONS = st.sampled_from(["take", "share", "release", "keep", "drop", "revive"])


@given(st.lists(st.tuples(ACTIONS, st.integers(0, 5))))
def test_free_held_and_cached_are_the_total_after_any_history(
    history: list[tuple[str, int]],
) -> None:
    pool = BlockPool(7)
    tables: list[list[int]] = []
    kept: set[int] = set()
    for action, number in history:
        held = {block for table in tables for block in table}
        if action == "take" and number <= pool.num_free:
            tables.append(pool.take(number))
        elif action == "share" and number < len(tables):
            for block in tables[number]:
                pool.share(block)
            tables.append(list(tables[number]))
        elif action == "release" and number < len(tables):
            pool.release(tables.pop(number))
        elif action == "keep" and number in held - kept:
            pool.keep(number)
            kept.add(number)
        elif action == "drop" and number in kept:
            pool.drop(number)
            kept.remove(number)
        elif action == "revive" and number in kept - held:
            pool.share(number)
            tables.append([number])
        pool.check_integrity(tables, kept)
        held = {block for table in tables for block in table}
        assert pool.num_cached == len(kept - held)
        assert pool.num_free == pool.total - len(kept | held)
