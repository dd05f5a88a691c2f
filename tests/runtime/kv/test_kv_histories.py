"""KV blocks, prefix cache and spill over long-lived requests: any history equals the oracle.

After every operation no block is lost or held twice, every block that a request sees holds the
keys and values of its own tokens, and hits, free, cached and spilled blocks are those of
`NaivePrefixes`. ``OPTC_KV_HISTORIES=5000`` tries more histories than `make test` does.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.eviction import Eviction
from optc.runtime.kv.kv_blocks import BlockTables, KVBlocks
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import HostStore
from tests.runtime.support.naive_prefixes import NaiveHolder, NaivePrefixes

#: Most requests at once, and tokens of one of them.
MOST_LIVE, LONGEST = 6, 24

tokens_drawn = st.lists(st.integers(0, 1), min_size=1, max_size=9)
which = st.integers(0, MOST_LIVE - 1)


@dataclass(eq=False)
class Holder:
    """A request beside its oracle; ``queued`` ones were preempted and hold nothing."""

    salt: str
    known: list[int]
    tables: BlockTables
    plain: NaiveHolder | None = None
    num_computed: int = 0
    queued: bool = False

    @property
    def tokens(self) -> Int32:
        return np.array(self.known, np.int32)

    def contents(self, index: int) -> int:
        """What stands for the keys and values of a token: they depend on all before it."""
        return zlib.crc32(self.salt.encode() + bytes(self.known[: index + 1]))


class Pools:
    """The contents of all blocks, a number a token."""

    def __init__(self, totals: tuple[int, ...], size: int) -> None:
        self.groups = [np.zeros((total, size), np.int64) for total in totals]
        self.size = size

    def write(self, holder: Holder, start: int, end: int) -> None:
        for group, pool in enumerate(self.groups):
            for index in range(start, end):
                block = holder.tables.blocks[group][index // self.size]
                pool[block, index % self.size] = holder.contents(index)

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        return self.groups[group][blocks].view(np.uint8)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        self.groups[group][blocks] = data.view(np.int64)


class Histories(RuleBasedStateMachine):
    """What a scheduler does with requests, in any order."""

    #: Windows of the KV groups that may be tried.
    windows: tuple[tuple[int, ...], ...] = ()

    @initialize(
        windows=st.runner().flatmap(lambda machine: st.sampled_from(machine.windows)),
        size=st.integers(1, 2),
        total=st.integers(3, 9),
        eviction=st.sampled_from(["lru", "lfu"]),
        spill=st.sampled_from([0, 1, 3, 8, 20]),
    )
    def begin(
        self, windows: tuple[int, ...], size: int, total: int, eviction: Eviction, spill: int
    ) -> None:
        totals = tuple(total - group for group in range(len(windows)))
        self.size = size
        self.pools = Pools(totals, size)
        self.store = Spill(HostStore(spill * size * 8), self.pools) if spill else None
        self.blocks = KVBlocks(
            windows, totals, size, prefix_cache=True, eviction=eviction, spill=self.store
        )
        self.naive = NaivePrefixes(windows, totals, size, eviction, spill)
        self.live: list[Holder] = []

    @rule(salt=st.sampled_from("ab"), prompt=tokens_drawn, follows=which, cut=st.integers(0, 20))
    def admit(self, salt: str, prompt: list[int], follows: int, cut: int) -> None:
        """A request comes; it may begin as another one does."""
        if len(self.live) == MOST_LIVE:
            return
        begun = self.live[follows].known[:cut] if follows < len(self.live) else []
        holder = Holder(salt, [*begun, *prompt][:LONGEST], self.blocks.new_tables())
        self.live.append(holder)
        self.resume(holder)

    @rule(number=which)
    def come_back(self, number: int) -> None:
        """A request that was preempted is admitted again."""
        queued = [holder for holder in self.live if holder.queued]
        if queued:
            self.resume(queued[number % len(queued)])

    @rule(salt=st.sampled_from("ab"), prompts=st.lists(tokens_drawn, min_size=1, max_size=6))
    def pass_by(self, salt: str, prompts: list[list[int]]) -> None:
        """Short requests come and go while others stay."""
        for prompt in prompts:
            holder = Holder(salt, prompt, self.blocks.new_tables())
            self.live.append(holder)
            self.resume(holder)
            self.compute(len(self.live) - 1, len(prompt))
            self.end(len(self.live) - 1)
            self.no_block_is_lost()

    def resume(self, holder: Holder) -> None:
        holder.queued = False
        holder.plain = self.naive.admit(holder.salt, tuple(holder.known))
        holder.num_computed = self.blocks.reuse(holder)
        assert holder.num_computed == holder.plain.computed

    def running(self, number: int) -> tuple[Holder, NaiveHolder] | None:
        """A request that is not queued, and its oracle."""
        holder = self.live[number % len(self.live)] if self.live else None
        return None if holder is None or holder.plain is None else (holder, holder.plain)

    @rule(number=which, count=st.integers(1, 7))
    def compute(self, number: int, count: int) -> None:
        """A chunk of what is known."""
        if (pair := self.running(number)) is None:
            return
        holder, plain = pair
        length = min(len(holder.known), holder.num_computed + count)
        done = self.blocks.grow(holder.tables, length)
        assert done == self.naive.take(plain, length)
        if done:
            self.pools.write(holder, holder.num_computed, length)
            self.accept(holder, plain, length)

    def accept(self, holder: Holder, plain: NaiveHolder, length: int) -> None:
        before, holder.num_computed = holder.num_computed, length
        self.blocks.store(holder, before)
        self.blocks.release_behind(holder.tables, length)
        self.naive.compute(plain, length)

    @rule(number=which, drafts=tokens_drawn, right=st.integers(0, 9))
    def decode(self, number: int, drafts: list[int], right: int) -> None:
        """A token is drawn, with drafts verified along with it, the first ``right`` of which hold;
        what the others wrote stays in the blocks."""
        if (pair := self.running(number)) is None:
            return
        holder, plain = pair
        known, right = len(holder.known), min(right, len(drafts) - 1)
        if holder.num_computed < known - 1 or known + right + 1 > LONGEST:
            return
        length = known + len(drafts) - 1
        done = self.blocks.grow(holder.tables, length)
        assert done == self.naive.take(plain, length)
        if not done:
            return
        wrong = [*drafts[:right], *(7 for _ in drafts[right:-1])]
        holder.known += wrong
        self.pools.write(holder, holder.num_computed, length)
        del holder.known[known:]
        self.accept(holder, plain, known)
        holder.known += drafts[: right + 1]
        plain.tokens = tuple(holder.known)
        if right:
            self.accept(holder, plain, known + right)

    @rule(drafts=tokens_drawn, right=st.integers(0, 9))
    def decode_together(self, drafts: list[int], right: int) -> None:
        """All that can draw the same."""
        for number in range(len(self.live)):
            self.decode(number, drafts, right)

    @rule(number=which)
    def fork(self, number: int) -> None:
        """A second completion takes over a computed prompt."""
        pair = self.running(number)
        if pair is None or len(self.live) == MOST_LIVE:
            return
        holder, plain = pair
        if holder.num_computed < len(holder.known):
            return
        other = Holder(holder.salt, list(holder.known), self.blocks.new_tables())
        copies = self.blocks.fork(holder.tables, other.tables, holder.num_computed)
        other.plain = self.naive.fork(plain)
        assert (copies is None) == (other.plain is None)
        if copies is None:
            assert not any(other.tables.blocks)
            return
        for group, source, target, tokens in copies:
            pool = self.pools.groups[group]
            pool[target, :tokens] = pool[source, :tokens]
        other.num_computed = holder.num_computed
        self.live.append(other)

    @rule(number=which)
    def catch_up(self, number: int) -> None:
        """Others have computed more of it."""
        if (pair := self.running(number)) is not None:
            holder, plain = pair
            assert self.blocks.catch_up(holder) == self.naive.catch_up(plain)
            assert holder.num_computed == plain.computed

    @rule(number=which)
    def preempt(self, number: int) -> None:
        """Others need its blocks; it waits for its turn."""
        if (pair := self.running(number)) is not None:
            self.release(*pair)
            pair[0].queued = True

    @rule(number=which)
    def end(self, number: int) -> None:
        """A request ends, wherever it is."""
        if self.live:
            holder = self.live.pop(number % len(self.live))
            if holder.plain is not None:
                self.release(holder, holder.plain)

    def release(self, holder: Holder, plain: NaiveHolder) -> None:
        self.blocks.free(holder.tables)
        self.naive.holders.remove(plain)
        holder.plain, holder.num_computed = None, 0

    @precondition(lambda self: hasattr(self, "blocks"))
    @invariant()
    def no_block_is_lost(self) -> None:
        self.blocks.check_integrity(self.live)
        for group, pool in enumerate(self.blocks.pools):
            free, cached = self.naive.free(group), self.naive.cached(group)
            assert (pool.num_free, pool.num_cached) == (free, cached), group
        assert self.store is None or self.store.num_blocks == len(self.naive.spilled)

    @precondition(lambda self: hasattr(self, "blocks"))
    @invariant()
    def everybody_sees_its_own(self) -> None:
        for holder in self.live:
            for group, window in enumerate(self.blocks.windows):
                table, computed = holder.tables.blocks[group], holder.num_computed
                for index in range(max(0, computed - window + 1) if window else 0, computed):
                    found = self.pools.groups[group][table[index // self.size], index % self.size]
                    assert found == holder.contents(index), (group, index)


class FullAttention(Histories):
    windows = ((0,), (0,), (0, 0))


class Mixed(Histories):
    windows = ((0, 3), (4, 0), (0, 4, 9), (1, 0))


class Windowed(Histories):
    windows = ((2,), (5,), (3, 8))


EFFORT = settings(
    max_examples=int(os.environ.get("OPTC_KV_HISTORIES", "80")),
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)
TestFullAttention = FullAttention.TestCase
TestFullAttention.settings = EFFORT
TestMixed = Mixed.TestCase
TestMixed.settings = EFFORT
TestWindowed = Windowed.TestCase
TestWindowed.settings = EFFORT
