"""Block tables of requests over all KV groups, windows included. Integers only.

Who owns what, for a request with c computed tokens whose next step writes n more, and blocks of
b tokens. Block j of a group holds the tokens ``[j*b, (j+1)*b)``:

    group            blocks held during the step
    full (window 0)  [0, ceil((c+n)/b))
    window w         [max(0, c-w+1) // b, ceil((c+n)/b));  those before are released: -1

Blocks that only the prefix cache keeps count as free: they are evicted when they are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.block_pool import BlockPool
from optc.runtime.kv.eviction import Eviction
from optc.runtime.kv.prefix_cache import BlockLog, PrefixCache
from optc.runtime.kv.prefix_node import ABSENT, Node
from optc.runtime.spill.spill import Spill

RELEASED = ABSENT


@dataclass
class BlockTables:
    """The blocks of one request.

    Attributes:
        blocks: By group, one entry for each run of block_size tokens; -1 where released. All
            have the same length. Arrays, not lists, because NumPy copies them at once.
        released: By group, how many leading entries are released.
    """

    blocks: tuple[array[int], ...]
    released: list[int] = field(default_factory=list)

    @classmethod
    def empty(cls, groups: int) -> BlockTables:
        """Tables that hold nothing."""
        return cls(tuple(array("i") for _ in range(groups)), [0] * groups)

    def held(self, group: int) -> array[int]:
        """Blocks that are really held in ``group``."""
        return self.blocks[group][self.released[group] :]


class BlockCopy(NamedTuple):
    """The first ``tokens`` tokens of block ``source`` are to be copied to ``target``."""

    group: int
    source: int
    target: int
    tokens: int


class HasTables(Protocol):
    """A holder of blocks."""

    tables: BlockTables


class HasPrefix(HasTables, Protocol):
    """A request as the prefix cache sees it; those of different ``salt`` share no blocks."""

    salt: str
    num_computed: int

    @property
    def tokens(self) -> Int32:
        """[n] all known tokens."""
        ...


class KVBlocks:
    """The block pools of all groups.

    Args:
        windows: Window of each group in tokens; 0 is full attention.
        totals: Blocks of each group.
        block_size: Tokens a block.
        states: Groups whose blocks hold the state behind their last token, not one row a token.
        prefix_cache: Keep full blocks of requests that ended, for those that begin alike.
        eviction: Which of them goes first when others need the room.
        spill: Where their contents go then; None is nowhere.
        log: Told of blocks that come and go; None is nobody.
    """

    def __init__(
        self,
        windows: tuple[int, ...],
        totals: tuple[int, ...],
        block_size: int,
        *,
        states: Collection[int] = (),
        prefix_cache: bool = False,
        eviction: Eviction = "lru",
        spill: Spill | None = None,
        log: BlockLog | None = None,
    ) -> None:
        self.windows = windows
        self.states = frozenset(states)
        self.block_size = block_size
        self.pools = tuple(BlockPool(total) for total in totals)
        self.prefixes: PrefixCache | None = None
        if prefix_cache:
            self.prefixes = PrefixCache(windows, self.pools, block_size, eviction, spill, log)

    def new_tables(self) -> BlockTables:
        """Empty tables for a request."""
        return BlockTables.empty(len(self.pools))

    def available(self) -> tuple[int, ...]:
        """Blocks that requests can have now, by group: free ones and those only cached."""
        return tuple(pool.num_free + pool.num_cached for pool in self.pools)

    def fits(self, tables: BlockTables, length: int) -> bool:
        """True if `grow` to ``length`` tokens would succeed now."""
        missing = self._missing(tables, length)
        return all(missing <= count for count in self.available())

    def fits_new(self, tables: BlockTables, length: int, chunk: int) -> bool:
        """True if a request that begins with ``tables`` could grow to ``length`` tokens,
        ``chunk`` a step."""
        return all(
            blocks_needed(length, chunk, window, self.block_size) - len(tables.held(group)) <= count
            for group, (window, count) in enumerate(
                zip(self.windows, self.available(), strict=True)
            )
        )

    def grow(self, tables: BlockTables, length: int) -> bool:
        """Extend the tables to hold ``length`` tokens; False, and nothing taken, if blocks of
        some group do not suffice."""
        missing = self._missing(tables, length)
        if missing <= 0:
            return True
        if not self.fits(tables, length):
            return False
        for group, (table, pool) in enumerate(zip(tables.blocks, self.pools, strict=True)):
            if self.prefixes and missing > pool.num_free:
                self.prefixes.evict(group, missing - pool.num_free)
            table.extend(pool.take(missing))
        return True

    def shrink(self, tables: BlockTables, length: int) -> bool:
        """Release the blocks behind ``length`` tokens; False if there are none."""
        kept = -(-length // self.block_size)
        excess = len(tables.blocks[0]) > kept
        for table, pool in zip(tables.blocks, self.pools, strict=True):
            pool.release(table[kept:])
            del table[kept:]
        return excess

    def reuse(self, request: HasPrefix, most: int | None = None) -> int:
        """Give a request without blocks those of its longest cached prefix, of ``most`` tokens
        (None: all but one); returns how many tokens need not be computed."""
        if self.prefixes is None:
            return 0
        tokens = _reusable(request, most)
        self.prefixes.restore(request.salt, tokens)
        return self._attach(request, self.prefixes.match(request.salt, tokens), self.prefixes)

    def _attach(self, request: HasPrefix, path: list[Node], prefixes: PrefixCache) -> int:
        prefixes.use(path)
        tables = request.tables
        for group, first in enumerate(prefixes.first_seen(len(path))):
            blocks = [node.blocks[group] for node in path[first:]]
            for block in blocks:
                self.pools[group].share(block)
            tables.blocks[group].extend([RELEASED] * first + blocks)
            tables.released[group] = first
        return len(path) * self.block_size

    def catch_up(self, request: HasPrefix, most: int | None = None) -> bool:
        """Go on from a cached prefix, of ``most`` tokens, that has become longer than what the
        request computed itself, if there is one: others computed the same meanwhile. Sets
        ``num_computed``."""
        if self.prefixes is None:
            return False
        path = self.prefixes.match(request.salt, _reusable(request, most))
        if len(path) * self.block_size <= request.num_computed:
            return False
        self.free(request.tables)  # its full blocks are those of the path, which stay cached
        request.num_computed = self._attach(request, path, self.prefixes)
        return True

    def fork(self, source: BlockTables, target: BlockTables, length: int) -> list[BlockCopy] | None:
        """Give empty tables the first ``length`` tokens of others that hold just these.

        Full blocks are shared, a partial last one is new and to be copied as returned; None, and
        nothing taken, if there is none left for it.
        """
        full, rest = divmod(length, self.block_size)
        for group, pool in enumerate(self.pools):
            table, released = source.blocks[group][:full], source.released[group]
            for block in table[released:]:
                pool.share(block)
            target.blocks[group].extend(table)
            target.released[group] = released
        if not self.grow(target, length):
            self.free(target)
            return None
        if not rest:
            return []
        return [
            BlockCopy(
                group,
                source.blocks[group][full],
                target.blocks[group][full],
                self.block_size if group in self.states else rest,
            )
            for group in range(len(self.pools))
        ]

    def store(self, request: HasPrefix, before: int) -> None:
        """Offer the prefix cache the blocks that became full since ``before`` computed tokens."""
        count = request.num_computed // self.block_size
        if self.prefixes is None or count == before // self.block_size:
            return
        mine = [table[:count].tolist() for table in request.tables.blocks]
        tokens = request.tokens[: count * self.block_size]
        for table, stored in zip(
            request.tables.blocks, self.prefixes.store(request.salt, tokens, mine), strict=True
        ):
            table[:count] = array("i", stored)

    def release_behind(self, tables: BlockTables, computed: int) -> None:
        """Release blocks that no row at position ``computed`` or later can see."""
        for group, window in enumerate(self.windows):
            if not window:
                continue
            table, first = tables.blocks[group], tables.released[group]
            last = min(len(table), max(0, computed - window + 1) // self.block_size)
            if last > first:
                self.pools[group].release(table[first:last])
                table[first:last] = array("i", [RELEASED]) * (last - first)
                tables.released[group] = last

    def free(self, tables: BlockTables) -> None:
        """Release all blocks of a request and empty its tables."""
        for group, pool in enumerate(self.pools):
            pool.release(tables.held(group))
            del tables.blocks[group][:]
            tables.released[group] = 0

    def check_integrity(self, holders: Iterable[HasTables]) -> None:
        """Check every pool against the tables of all requests that exist.

        Raises:
            RuntimeError: A block leaked, is held twice or lost by the cache; names the group.
        """
        tables = [holder.tables for holder in holders]
        for group, pool in enumerate(self.pools):
            kept = self.prefixes.kept(group) if self.prefixes else []
            try:
                pool.check_integrity((t.held(group) for t in tables), kept)
            except RuntimeError as error:
                raise RuntimeError(f"KV group {group}: {error}") from error
        if self.prefixes:
            self.prefixes.check_integrity()

    def _missing(self, tables: BlockTables, length: int) -> int:
        """Blocks that each group lacks to hold ``length`` tokens; may be negative."""
        return -(-length // self.block_size) - len(tables.blocks[0])


def blocks_needed(length: int, chunk: int, window: int, block_size: int) -> int:
    """Most blocks of a group that a request of ``length`` tokens holds at once.

    Args:
        length: Tokens of the request.
        chunk: Most new rows of it in one step.
        window: Window of the group; 0 is full attention.
        block_size: Tokens a block.
    """
    whole = -(-length // block_size)
    if not window:
        return whole
    # window - 1 earlier tokens and a chunk; at the worst the first of them is a block's last.
    return min(whole, 1 + -(-(window - 2 + chunk) // block_size))


def _reusable(request: HasPrefix, most: int | None) -> Int32:
    """The tokens of a request of which all but the last may come from the cache."""
    return request.tokens if most is None else request.tokens[: most + 1]
