"""The prefix cache: hits, windows, salts, eviction. `test_kv_histories` holds it to its oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Int32
from optc.runtime.kv.eviction import Eviction
from optc.runtime.kv.kv_blocks import BlockTables, KVBlocks
from optc.runtime.kv.prefix_cache import PrefixCache
from optc.runtime.kv.prefix_node import ABSENT, Node
from optc.runtime.kv.spill_plan import Lost
from optc.runtime.settings import ServeSettings
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import HostStore
from tests.runtime.support.toy import ToyExecutable, toy_spec


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


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
@pytest.mark.parametrize("held", [0, 1, 2])
def test_a_prefix_goes_once_nothing_follows_it(eviction: Eviction, held: int) -> None:
    """However many of the three that follow it are held, and in whichever order they were used."""
    blocks = make_blocks(totals=(9,), eviction=eviction)
    assert blocks.prefixes is not None
    holders = [admit(blocks, [1, 1, token, token, 0]) for token in (2, 3, 4)]
    for holder in holders:
        assert compute(blocks, holder, 4)
    for holder in holders[held:]:
        blocks.free(holder.tables)
    free = 3 - held + (held == 0)
    assert blocks.available() == (5 + free,)
    other = admit(blocks, [9] * 20)
    for count in range(1, free + 1):
        assert blocks.grow(other.tables, 2 * (5 + count))
        blocks.check_integrity([*holders[:held], other])
        left = [len(blocks.prefixes.match("", holder.tokens)) for holder in holders]
        expected = [2] * (3 - count) + [1] * count if count < 4 else [0, 0, 0]
        assert sorted(left) == sorted(expected)
        assert left[:held] == [2] * held


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
        Engine(lambda: ToyExecutable(toy_spec()), ServeSettings(prefix_eviction="fifo"))  # type: ignore[arg-type]
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


def pass_by(blocks: KVBlocks, *prompts: list[int]) -> None:
    """Requests that come, are computed and go."""
    for prompt in prompts:
        holder = admit(blocks, prompt)
        assert compute(blocks, holder, len(prompt))
        blocks.free(holder.tables)


@pytest.mark.parametrize("spill", [0, 8])
def test_a_long_request_of_old_keeps_its_first_blocks_before_its_last(spill: int) -> None:
    """Others made the cache age meanwhile, so that what is stored later weighs more."""
    store = Spill(HostStore(spill), NoContents()) if spill else None
    blocks = make_blocks(totals=(3,), size=1, eviction="lfu", spill=store)
    long = admit(blocks, [1, 2])
    assert compute(blocks, long, 1)
    pass_by(blocks, *([token] for token in range(10, 16)))
    assert compute(blocks, long, 2)
    blocks.free(long.tables)
    other = admit(blocks, [20, 21])
    assert compute(blocks, other, 2)
    blocks.check_integrity([other])
    blocks.free(other.tables)
    assert blocks.prefixes is not None
    assert len(blocks.prefixes.match("", np.array([1, 9], np.int32))) == 1


@pytest.mark.parametrize(("room", "left"), [(4, 1), (5, 0)])
def test_what_several_completions_made_goes_before_what_they_forked_from(
    room: int, left: int
) -> None:
    """The prompt counts one use, what three completions said behind it three."""
    blocks = make_blocks(totals=(5,), size=1, eviction="lfu")
    leader = admit(blocks, [1])
    assert compute(blocks, leader, 1)
    forked = [Holder("", np.array([1, 2], np.int32), blocks.new_tables()) for _ in range(3)]
    for other in forked:
        assert blocks.fork(leader.tables, other.tables, 1) == []
        other.num_computed = 1
        assert compute(blocks, other, 2)
    for holder in (leader, *forked):
        blocks.free(holder.tables)
    pressing = admit(blocks, list(range(10, 10 + room)))
    assert compute(blocks, pressing, room)
    blocks.check_integrity([pressing])
    assert blocks.prefixes is not None
    assert len(blocks.prefixes.match("", np.array([1, 2, 3], np.int32))) == left


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_no_block_is_evicted_from_under_a_path_that_is_restored(eviction: Eviction) -> None:
    """Without full attention a block may go before what follows it, which then goes for its
    return."""
    store = Spill(HostStore(8), NoContents())
    blocks = make_blocks((2,), (5,), 1, eviction, store)
    pass_by(blocks, [1, 0], [1, 0, 0], [0, 0, 0, 0], [1, 0])
    blocks.check_integrity([])
    assert admit(blocks, [1, 0]).num_computed == 1


def test_a_restored_block_counts_one_use() -> None:
    store = Spill(HostStore(9), NoContents())
    blocks = make_blocks(totals=(2,), size=1, eviction="lfu", spill=store)
    pass_by(blocks, [1], [2], [3])
    for again in (3, 1):  # the second is restored
        blocks.free(admit(blocks, [again, 0]).tables)
    assert store.restored_blocks == 1
    pass_by(blocks, [5])
    assert blocks.prefixes is not None
    left = [len(blocks.prefixes.match("", np.array([n, 0], np.int32))) for n in (1, 3)]
    assert left == [0, 1], "3 was used twice"


def test_a_restore_does_not_push_out_what_it_restores() -> None:
    """The spill is full, and what is evicted for the restore goes there too."""
    store = Spill(HostStore(2), NoContents())
    blocks = make_blocks(totals=(2,), size=1, spill=store)
    pass_by(blocks, [1], [2], [3], [4])
    assert store.num_blocks == 2
    assert admit(blocks, [1, 0]).num_computed == 1


def test_the_first_block_that_the_next_row_sees() -> None:
    cache = make_blocks(windows=(0, 3, 4, 5), totals=(9,) * 4, size=2).prefixes
    assert cache is not None
    assert cache.first_seen(0) == [0, 0, 0, 0]
    assert cache.first_seen(4) == [0, 3, 2, 2]  # the row at 8 sees 6, 5 and 4 onwards


def test_nothing_is_left_of_what_was_evicted() -> None:
    blocks = make_blocks()
    holder = admit(blocks, [1, 2, 3, 4, 5], salt="tenant")
    assert compute(blocks, holder, 5)
    blocks.free(holder.tables)
    cache = blocks.prefixes
    assert cache is not None
    assert set(cache._roots) == {"tenant"}
    cache.evict(0, 2)
    assert cache._roots == {}
    blocks.check_integrity([])


def test_storing_again_is_a_use() -> None:
    blocks = make_blocks(totals=(6,))
    old, new = admit(blocks, [1, 1, 1]), admit(blocks, [2, 2, 2])
    assert compute(blocks, old, 3)
    assert compute(blocks, new, 3)
    old.tokens = np.array([1, 1, 1, 3, 3], np.int32)
    assert compute(blocks, old, 5)  # its first block counts as used after the other's
    for holder in (old, new):
        blocks.free(holder.tables)
    cache = blocks.prefixes
    assert cache is not None
    cache.evict(0, 1)
    assert admit(blocks, [2, 2, 2]).num_computed == 0
    assert admit(blocks, [1, 1, 1]).num_computed == 2


def cached_path(windows: tuple[int, ...] = (0,)) -> tuple[KVBlocks, PrefixCache, Node]:
    """Two full blocks that nobody holds any more, and the node of the second."""
    blocks = make_blocks(windows, (9,) * len(windows))
    holder = admit(blocks, [1, 2, 3, 4, 5])
    assert compute(blocks, holder, 5)
    blocks.free(holder.tables)
    cache = blocks.prefixes
    assert cache is not None
    cache.check_integrity()
    return blocks, cache, cache.match("", np.array([1, 2, 3, 4, 5], np.int32))[-1]


def test_a_lost_block_of_the_tree_is_found() -> None:
    _, cache, node = cached_path()
    node.blocks[0] = ABSENT
    with pytest.raises(RuntimeError, match="KV group 0: the prefix tree lost a block"):
        cache.check_integrity()


def test_a_full_attention_block_is_not_missing_above_others() -> None:
    _, cache, node = cached_path((0, 4))
    assert node.blocks[1] != ABSENT
    cache._forget(node, 0)
    with pytest.raises(RuntimeError, match="KV group 0: the prefix tree lost a block"):
        cache.check_integrity()


def test_an_empty_leaf_is_found() -> None:
    _, cache, node = cached_path((4,))
    cache._forget(node, 0)
    with pytest.raises(RuntimeError, match="the prefix tree has an empty leaf"):
        cache.check_integrity()


def test_an_empty_root_is_found() -> None:
    _, cache, node = cached_path()
    assert node.parent is not None
    for each in (node, node.parent):
        cache._forget(each, 0)
    root = node.parent.parent
    assert root is not None
    root.children.clear()
    with pytest.raises(RuntimeError, match="the prefix tree has an empty root"):
        cache.check_integrity()


def test_only_what_finds_room_is_restored() -> None:
    """Two blocks are lost, one is free: the second is left, and so is all behind it."""
    spill = Spill(HostStore(8), NoContents())
    blocks = make_blocks((0, 4), (2, 3), 1, spill=spill)
    assert compute(blocks, admit(blocks, [1, 2]), 1)
    assert blocks.prefixes is not None
    names = b"first", b"second"
    for group in range(2):
        spill.save(group, b"first", 0)
    lost = [Lost(group, place, name) for place, name in enumerate(names) for group in range(2)]
    assert blocks.prefixes._make_room(lost, spill) == lost[:2]
    assert [pool.num_free for pool in blocks.pools] == [1, 2]


def test_catching_up_says_whether_it_did() -> None:
    blocks = make_blocks()
    first, second = admit(blocks, [7] * 7), admit(blocks, [7] * 7)
    assert compute(blocks, second, 2)
    assert blocks.catch_up(second) is False
    assert compute(blocks, first, 6)
    assert blocks.catch_up(second) is True
    assert second.num_computed == 6
    assert KVBlocks((0,), (4,), 2).catch_up(second) is False, "without a cache there is nothing"


def tree(windows: tuple[int, ...]) -> tuple[PrefixCache, Node]:
    """A cache of two blocks in a row, one behind the other, and the last."""
    blocks = make_blocks(windows, (9,) * len(windows))
    first = admit(blocks, [1, 2, 3, 4, 5])
    assert compute(blocks, first, 5)
    cache = blocks.prefixes
    assert cache is not None
    cache.check_integrity()
    (root,) = cache._roots.values()
    (parent,) = root.children.values()
    (leaf,) = parent.children.values()
    return cache, leaf


@pytest.mark.parametrize("windows", [(0,), (0, 8)])
def test_a_node_that_has_lost_its_block_is_found(windows: tuple[int, ...]) -> None:
    """Whether or not it is still counted among those that have one."""
    cache, leaf = tree(windows)
    leaf.blocks[0] = ABSENT
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^KV group 0: the prefix tree lost a block$"):
            cache.check_integrity()
        if leaf in cache._used[0]:
            cache._used[0].remove(leaf)


def test_a_node_may_lack_its_block_where_windows_have_passed() -> None:
    cache, leaf = tree((0, 8))
    leaf.blocks[1] = ABSENT
    with pytest.raises(RuntimeError, match=r"^KV group 1: the prefix tree lost a block$"):
        cache.check_integrity()
    cache._used[1].remove(leaf)
    cache.check_integrity()


def test_an_empty_leaf_and_an_empty_root_are_found() -> None:
    cache, leaf = tree((8,))
    leaf.blocks[0] = ABSENT
    cache._used[0].remove(leaf)
    with pytest.raises(RuntimeError, match=r"^the prefix tree has an empty leaf$"):
        cache.check_integrity()
    cache, _ = tree((8,))
    cache._roots["other"] = Node(b"other", None, 1)
    with pytest.raises(RuntimeError, match=r"^the prefix tree has an empty root$"):
        cache.check_integrity()


class Told:
    """Takes note of blocks."""

    def __init__(self) -> None:
        self.gone: list[bytes] = []

    def stored(self, salt: str, node: Node) -> bool:
        return True

    def removed(self, node: Node) -> None:
        self.gone.append(node.key)


@pytest.mark.parametrize("told", [False, True])
def test_blocks_have_a_digest_where_somebody_is_told_of_them(told: bool) -> None:
    blocks = KVBlocks((0,), (9,), 2, prefix_cache=True)
    cache = PrefixCache((0,), blocks.pools, 2, log=Told() if told else None)
    path = cache._grow_path("salt", np.array([1, 2, 3, 4], np.int32))
    assert [bool(node.digest) for node in path] == [told, told]
    assert len({node.digest for node in path}) == (2 if told else 1)


@pytest.mark.parametrize("heard", [(True, True), (False, True), (True, False), (False, False)])
def test_who_was_told_of_a_block_is_told_when_it_goes(heard: tuple[bool, bool]) -> None:
    blocks, log = KVBlocks((0,), (9,), 2, prefix_cache=True), Told()
    cache = PrefixCache((0,), blocks.pools, 2, log=log)
    path = cache._grow_path("salt", np.array([1, 2, 3, 4], np.int32))
    for node, told in zip(path, heard, strict=True):
        node.told = told
    cache._prune(path[-1])
    assert log.gone == [n.key for n, told in zip(path[::-1], heard[::-1], strict=True) if told]
    assert not cache._roots
