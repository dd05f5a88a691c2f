"""The KV blocks of one group: a free list and reference counts, integers only.

A block is free (nobody holds it, on the free list), held (count of its holders above 0), or
cached (nobody holds it, but the prefix cache keeps its contents); free + held + cached is the
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
        self._kept = [False] * total
        self._cached = 0

    @property
    def num_free(self) -> int:
        """Blocks that `take` can hand out."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that nobody holds but the prefix cache keeps; `drop` makes them free."""
        return self._cached

    def holders(self, block: int) -> int:
        """The number of holders of the block, the prefix cache not counted."""
        return self._holders[block]

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
        """Add a holder to a held or cached block.

        Raises:
            ValueError: The block is free.
        """
        if not self._holders[block]:
            if not self._kept[block]:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._cached -= 1
        self._holders[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Take one holder from each block; those without holders become cached or free.

        Raises:
            ValueError: A block has no holder.
        """
        for block in blocks:
            if not self._holders[block]:
                raise ValueError(f"block {block} is free already")
            self._holders[block] -= 1
            if not self._holders[block]:
                if self._kept[block]:
                    self._cached += 1
                else:
                    self._free.append(block)

    def keep(self, block: int) -> None:
        """Keep a held block's contents after its last holder goes.

        Raises:
            ValueError: Nobody holds the block, or it is kept already.
        """
        if not self._holders[block] or self._kept[block]:
            raise ValueError(f"block {block} cannot be kept")
        self._kept[block] = True

    def drop(self, block: int) -> None:
        """End `keep`; without holders the block becomes free.

        Raises:
            ValueError: The block is not kept.
        """
        if not self._kept[block]:
            raise ValueError(f"block {block} is not kept")
        self._kept[block] = False
        if not self._holders[block]:
            self._cached -= 1
            self._free.append(block)

    def check_integrity(self, tables: Iterable[Iterable[int]], kept: Iterable[int] = ()) -> None:
        """Check that free + held + cached == total, and who holds and keeps what.

        Args:
            tables: The blocks of every holder (a block of k holders appears k times).
            kept: The blocks of the prefix cache.

        Raises:
            RuntimeError: A block leaked, is free twice, or is held or kept by someone unknown.
        """
        counted = [0] * self.total
        for table in tables:
            for block in table:
                counted[block] += 1
        if counted != self._holders:
            wrong = [b for b in range(self.total) if counted[b] != self._holders[b]]
            raise RuntimeError(f"holders of blocks {wrong} do not match the tables")
        if sorted(kept) != [block for block in range(self.total) if self._kept[block]]:
            raise RuntimeError("the kept blocks are not those of the prefix cache")
        free = set(self._free)
        held = sum(1 for count in self._holders if count)
        cached = sum(k and not h for k, h in zip(self._kept, self._holders, strict=True))
        if (
            cached != self._cached
            or len(free) + held + cached != self.total
            or len(free) != len(self._free)
        ):
            raise RuntimeError(
                f"{len(self._free)} free + {held} held + {self._cached} cached "
                f"!= {self.total} blocks"
            )
        if any(self._holders[block] or self._kept[block] for block in free):
            raise RuntimeError("a block is free and in use at once")
