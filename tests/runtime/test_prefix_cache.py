"""The prefix cache against its oracle, and through the core: hits, windows, salts, eviction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.eviction import Eviction
from optc.runtime.executable import Int32
from optc.runtime.kv_blocks import BlockTables, KVBlocks
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import HostStore
from tests.runtime.naive_prefixes import NaiveHolder, NaivePrefixes
from tests.runtime.toy import ToyExecutable, toy_spec


@dataclass(eq=False)
class Holder:
    """A request that is tokens and tables only."""

    salt: str
    tokens: Int32
    tables: BlockTables
    num_computed: int = 0


def make_blocks(
    windows: tuple[int, ...] = (0,),
    totals: tuple[int, ...] = (9,),
    size: int = 2,
    eviction: Eviction = "lru",
    spill: Spill | None = None,
) -> KVBlocks:
    return KVBlocks(windows, totals, size, prefix_cache=True, eviction=eviction, spill=spill)


def admit(blocks: KVBlocks, tokens: list[int], salt: str = "") -> Holder:
    holder = Holder(salt, np.array(tokens, np.int32), blocks.new_tables())
    holder.num_computed = blocks.reuse(holder)
    return holder


def compute(blocks: KVBlocks, holder: Holder, length: int) -> bool:
    """What the scheduler does with a request in a step."""
    if not blocks.grow(holder.tables, length):
        return False
    before, holder.num_computed = holder.num_computed, length
    blocks.store(holder, before)
    blocks.release_behind(holder.tables, length)
    return True


def test_full_blocks_are_found_again_and_one_token_is_left_to_compute() -> None:
    blocks = make_blocks()
    first = admit(blocks, [1, 2, 3, 4, 5])
    assert first.num_computed == 0
    assert compute(blocks, first, 5)
    same = admit(blocks, [1, 2, 3, 4])
    assert same.num_computed == 2, "the whole prompt is cached, but its logits are not"
    longer = admit(blocks, [1, 2, 3, 4, 9, 9])
    assert longer.num_computed == 4
    assert longer.tables.blocks[0] == first.tables.blocks[0][:2]
    assert admit(blocks, [2, 2, 3, 4]).num_computed == 0
    assert admit(blocks, [1, 2, 3, 4, 5], salt="other").num_computed == 0
    blocks.check_integrity([first, same, longer])


def test_two_that_compute_the_same_share_it_afterwards() -> None:
    blocks = make_blocks()
    first, second = admit(blocks, [7] * 5), admit(blocks, [7] * 5)
    assert compute(blocks, first, 5)
    assert compute(blocks, second, 5)
    assert first.tables.blocks[0][:2] == second.tables.blocks[0][:2]
    assert first.tables.blocks[0][2] != second.tables.blocks[0][2]
    assert blocks.pools[0].num_free == 5
    blocks.check_integrity([first, second])


def test_the_least_recently_used_end_goes_first() -> None:
    blocks = make_blocks(totals=(4,))
    for tokens in ([1, 1, 2, 2], [3, 3, 4, 4]):
        holder = admit(blocks, tokens)
        assert compute(blocks, holder, 4)
        blocks.free(holder.tables)
    blocks.free(admit(blocks, [1, 1, 2, 2, 0]).tables)  # used again
    assert blocks.available() == (4,)
    other = admit(blocks, [5, 5])
    assert compute(blocks, other, 1)
    assert admit(blocks, [1, 1, 2, 2, 0]).num_computed == 4
    assert admit(blocks, [3, 3, 4, 4, 0]).num_computed == 2


@pytest.mark.parametrize(("eviction", "left"), [("lru", 0), ("lfu", 4)])
def test_lfu_keeps_what_many_used(eviction: Eviction, left: int) -> None:
    blocks = make_blocks(totals=(4,), eviction=eviction)
    for _ in range(5):
        popular = admit(blocks, [1, 1, 2, 2, 3])
        assert compute(blocks, popular, 4)
        blocks.free(popular.tables)
    for token in range(10, 14):
        once = admit(blocks, [token] * 4)
        assert compute(blocks, once, 4)
        blocks.free(once.tables)
    assert admit(blocks, [1, 1, 2, 2, 0]).num_computed == left


def test_lfu_forgets_what_was_popular_long_ago() -> None:
    blocks = make_blocks(totals=(4,), eviction="lfu")
    for _ in range(5):
        popular = admit(blocks, [1, 1, 2])
        assert compute(blocks, popular, 2)
        blocks.free(popular.tables)
    for token in range(10, 40):
        once = admit(blocks, [token] * 6)
        assert compute(blocks, once, 6)
        blocks.free(once.tables)
    assert admit(blocks, [1, 1, 2]).num_computed == 0


def test_an_unknown_eviction_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Engine(lambda: ToyExecutable(toy_spec()), prefix_eviction="fifo")  # type: ignore[arg-type]
    message = "prefix_eviction: eviction 'fifo' is not known (one of lru, lfu)"
    assert str(caught.value) == message


def test_a_hit_ends_where_the_window_has_its_blocks() -> None:
    blocks = make_blocks((0, 4), (8, 5), 2)
    holder = admit(blocks, list(range(9)))
    for length in range(1, 9):
        assert compute(blocks, holder, length)
    blocks.free(holder.tables)
    assert [pool.num_cached for pool in blocks.pools] == [4, 4]
    # Two new blocks in the windowed group: one is free, the oldest cached one goes, nothing of
    # the full group does. The row at 8 sees 5..8, hence blocks 2 and 3.
    other = admit(blocks, [50, 51, 52])
    assert compute(blocks, other, 3)
    assert [pool.num_cached for pool in blocks.pools] == [4, 3]
    again = admit(blocks, [*range(8), 60])
    assert again.num_computed == 8
    assert list(again.tables.blocks[1]) == [-1, -1, *again.tables.held(1)]
    blocks.free(again.tables)
    short = admit(blocks, [0, 1, 2, 60])
    assert short.num_computed == 0, "the row at 2 sees block 0, which is gone"


@pytest.mark.parametrize("damage", ["used", "child"])
def test_a_damaged_tree_is_found(damage: str) -> None:
    blocks = make_blocks()
    assert blocks.prefixes is not None
    holder = admit(blocks, [1, 2, 3, 4])
    assert compute(blocks, holder, 4)
    node = blocks.prefixes.match("", np.array([1, 2, 3], np.int32))[0]
    if damage == "used":
        node.blocks[0] = -1
    else:
        node.children.clear()
    with pytest.raises(RuntimeError, match=r"the prefix tree lost a block|the kept blocks"):
        blocks.check_integrity([holder])


class NoContents:
    """Blocks of one byte, for who does not look at it."""

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        return np.zeros((len(blocks), 1), np.uint8)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        assert data.shape == (len(blocks), 1)


actions = st.lists(
    st.tuples(
        st.sampled_from(["admit", "compute", "compute", "catch up", "free"]),
        st.integers(0, 5),  # which holder, or which salt
        st.integers(1, 7),  # how many tokens
        st.lists(st.integers(0, 1), min_size=1, max_size=16),  # prompt
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    actions=actions,
    windows=st.sampled_from([(0,), (0, 3), (0, 1), (0, 4, 9), (5,), (3, 8)]),
    size=st.integers(1, 4),
    total=st.integers(3, 14),
    eviction=st.sampled_from(["lru", "lfu"]),
    spill=st.integers(0, 20),
)
def test_any_history_equals_the_oracle(
    actions: list[tuple[str, int, int, list[int]]],
    windows: tuple[int, ...],
    size: int,
    total: int,
    eviction: Eviction,
    spill: int,
) -> None:
    """With and without a spill of ``spill`` blocks of one byte; frequencies without."""
    spill *= eviction == "lru"
    store = Spill(HostStore(spill), NoContents()) if spill else None
    totals = tuple(total - group for group in range(len(windows)))
    blocks = make_blocks(windows, totals, size, eviction, store)
    naive = NaivePrefixes(windows, totals, size, eviction, spill)
    live: list[tuple[Holder, NaiveHolder]] = []
    for action, number, count, prompt in actions:
        if action == "admit":
            salt = "ab"[number % 2]
            live.append((admit(blocks, prompt, salt), naive.admit(salt, tuple(prompt))))
            assert live[-1][0].num_computed == live[-1][1].computed
        elif number < len(live):
            holder, plain = live[number]
            if action == "free":
                blocks.free(holder.tables)
                naive.holders.remove(plain)
                del live[number]
            elif action == "catch up":
                assert blocks.catch_up(holder) == naive.catch_up(plain)
                assert holder.num_computed == plain.computed
            else:
                length = min(len(holder.tokens), holder.num_computed + count)
                assert compute(blocks, holder, length) == naive.grow(plain, length)
        blocks.check_integrity(holder for holder, _ in live)
        for group, pool in enumerate(blocks.pools):
            assert (pool.num_free, pool.num_cached) == (naive.free(group), naive.cached(group))
        assert store is None or store.num_blocks == len(naive.spilled)
