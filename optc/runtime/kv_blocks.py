"""Block tables of requests over all KV groups, windows included. Integers only.

Who owns what, for a request with c computed tokens whose next step writes n more, and blocks of
b tokens. Block j of a group holds the tokens ``[j*b, (j+1)*b)``:

    group            blocks held during the step
    full (window 0)  [0, ceil((c+n)/b))
    window w         [max(0, c-w+1) // b, ceil((c+n)/b));  those before are released: -1
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from optc.runtime.block_pool import BlockPool

RELEASED = -1


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


class HasTables(Protocol):
    """What this module needs to know of a request."""

    tables: BlockTables


class KVBlocks:
    """The block pools of all groups.

    Args:
        windows: Window of each group in tokens; 0 is full attention.
        totals: Blocks of each group.
        block_size: Tokens a block.
    """

    def __init__(self, windows: tuple[int, ...], totals: tuple[int, ...], block_size: int) -> None:
        self.windows = windows
        self.block_size = block_size
        self.pools = tuple(BlockPool(total) for total in totals)

    def new_tables(self) -> BlockTables:
        """Empty tables for a request."""
        return BlockTables.empty(len(self.pools))

    def fits(self, tables: BlockTables, length: int) -> bool:
        """Whether `grow` to ``length`` tokens would succeed now."""
        missing = self._missing(tables, length)
        return all(missing <= pool.num_free for pool in self.pools)

    def fits_new(self, length: int, chunk: int) -> bool:
        """Whether a request without blocks could grow to ``length`` tokens, ``chunk`` a step."""
        return all(
            blocks_needed(length, chunk, window, self.block_size) <= pool.num_free
            for window, pool in zip(self.windows, self.pools, strict=True)
        )

    def grow(self, tables: BlockTables, length: int) -> bool:
        """Extend the tables to hold ``length`` tokens; False, and nothing taken, if blocks of
        some group do not suffice."""
        missing = self._missing(tables, length)
        if missing <= 0:
            return True
        if not self.fits(tables, length):
            return False
        for table, pool in zip(tables.blocks, self.pools, strict=True):
            table.extend(pool.take(missing))
        return True

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
            RuntimeError: A block leaked or is held twice; names the group.
        """
        tables = [holder.tables for holder in holders]
        for group, pool in enumerate(self.pools):
            try:
                pool.check_integrity(t.held(group) for t in tables)
            except RuntimeError as error:
                raise RuntimeError(f"KV group {group}: {error}") from error

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
    # window - 1 earlier tokens and a chunk, at the worst alignment to blocks.
    return min(whole, -(-(window - 1 + chunk) // block_size) + 1)
