"""The KV blocks of one group: a free list and reference counts, integers only.

A block is free (count 0, on the free list) or held (count of its holders); free + held is the
total at all times, which `BlockPool.check_integrity` asserts.
"""

from __future__ import annotations

from collections.abc import Iterable


class BlockPool:
    """Hands out the blocks ``0 .. total - 1`` of one KV group.

    Args:
        total: Number of blocks in the group's pools.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        # A stack: the block used last is handed out next, while it is still in cache.
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total

    @property
    def num_free(self) -> int:
        """Blocks that `take` can hand out."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """``count`` free blocks, each with one holder.

        Raises:
            ValueError: Fewer are free; ask `num_free` first.
        """
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} free")
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Add a holder to a held block.

        Raises:
            ValueError: The block is free.
        """
        if not self._holders[block]:
            raise ValueError(f"block {block} is free and cannot be shared")
        self._holders[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Take one holder from each block; those without holders become free.

        Raises:
            ValueError: A block is free already.
        """
        for block in blocks:
            if not self._holders[block]:
                raise ValueError(f"block {block} is free already")
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free.append(block)

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Check that free + held == total and that ``tables`` name all holders.

        Args:
            tables: The blocks of every holder (a block of k holders appears k times).

        Raises:
            RuntimeError: A block leaked, is free twice, or is held by someone unknown.
        """
        counted = [0] * self.total
        for table in tables:
            for block in table:
                counted[block] += 1
        if counted != self._holders:
            wrong = [b for b in range(self.total) if counted[b] != self._holders[b]]
            raise RuntimeError(f"holders of blocks {wrong} do not match the tables")
        free = set(self._free)
        held = sum(1 for count in self._holders if count)
        if len(free) != len(self._free) or len(free) + held != self.total:
            raise RuntimeError(f"{len(self._free)} free + {held} held != {self.total} blocks")
        if any(self._holders[block] for block in free):
            raise RuntimeError("a block is free and held at once")
