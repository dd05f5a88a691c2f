"""`PrefixCache`: which full KV blocks hold which prefix, so that it need not be computed again.

A radix tree: the edge to a node is the tokens of one full block, so that the path from the root
is a prefix, and a node names the block of its last tokens in every KV group. Roots are by salt
(adapter, tenant): requests of different salts share nothing. (Compare RadixAttention: Zheng et
al., 2024.)

The cache keeps blocks that nobody holds any more until someone needs the room. What holds:
- A request's full blocks *are* the tree's blocks: two requests that computed the same prefix at
  once are given the same block when it is full. So who holds a node's block in a full-attention
  group holds those of all its ancestors as well.
- A node has a block in the full-attention group as long as it exists. A block of a windowed group
  can be missing (`ABSENT`): a hit only needs those that its next row sees.
- Eviction (`optc.runtime.eviction`) takes the first block in its order that nobody holds. Uses are
  recorded from the end of a path to its root, and who uses a node uses its ancestors: hence a node
  of a full-attention group always goes after its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from optc.runtime.block_pool import BlockPool
from optc.runtime.eviction import Eviction, Order, make_order
from optc.runtime.executable import Int32
from optc.runtime.prefix_node import ABSENT, Node, descendants
from optc.runtime.spill.spill import Spill, chain, root_digest


class PrefixCache:
    """The tree over the blocks of all groups' pools.

    Args:
        windows: Window of each group in tokens; 0 is full attention.
        pools: The groups' pools.
        block_size: Tokens a block.
        eviction: Which block goes first.
        spill: Where the contents of evicted blocks go; None is nowhere.
    """

    def __init__(
        self,
        windows: tuple[int, ...],
        pools: tuple[BlockPool, ...],
        block_size: int,
        eviction: Eviction = "lru",
        spill: Spill | None = None,
    ) -> None:
        self._windows = windows
        self._pools = pools
        self._block_size = block_size
        self._spill = spill
        self._roots: dict[str, Node] = {}
        # By group: the nodes with a block in it.
        self._used: tuple[Order[Node], ...] = tuple(make_order(eviction) for _ in windows)

    def match(self, salt: str, tokens: Int32) -> list[Node]:
        """The longest path that a request of ``tokens`` [n] can go on from.

        It leaves at least one token to compute, and every windowed group has the blocks that
        the next row sees.
        """
        path: list[Node] = []
        usable = 0
        present = [0] * len(self._windows)  # by group: blocks without a gap at the path's end
        limit = (len(tokens) - 1) // self._block_size
        for node in self._walk(salt, tokens[: limit * self._block_size]):
            path.append(node)
            for group, block in enumerate(node.blocks):
                present[group] = present[group] + 1 if block != ABSENT else 0
            needed = [len(path) - first for first in self.first_seen(len(path))]
            if all(have >= need for have, need in zip(present, needed, strict=True)):
                usable = len(path)
        return path[:usable]

    def restore(self, salt: str, tokens: Int32) -> None:
        """Bring back what was spilled, if a request of ``tokens`` [n] can go on from more of it and
        that pays. Others may be evicted for it."""
        if self._spill is None:
            return
        limit = (len(tokens) - 1) // self._block_size
        plan = self._restorable(salt, tokens[: limit * self._block_size], self._spill)
        gained = plan.length - len(self.match(salt, tokens))
        if gained <= 0 or not self._spill.pays(gained * self._block_size, len(plan.missing)):
            return
        path = self._grow_path(salt, tokens[: plan.length * self._block_size])
        seen = [path[first:] for first in self.first_seen(plan.length)]
        held = [
            [node.blocks[group] for node in nodes if node.blocks[group] != ABSENT]
            for group, nodes in enumerate(seen)
        ]
        for pool, blocks in zip(self._pools, held, strict=True):
            for block in blocks:
                pool.share(block)
        for group, index in plan.missing:
            filled = self._refill(path[index], group, self._spill)
            if filled is None:
                break
            held[group].append(filled)
        for group, nodes in enumerate(seen):
            for node in reversed(nodes):
                if node.blocks[group] != ABSENT:
                    self._used[group].use(node)
            self._pools[group].release(held[group])
        self._prune(path[-1])

    def first_seen(self, count: int) -> list[int]:
        """By group, the first block that the row after ``count`` full blocks sees."""
        position = count * self._block_size
        return [
            max(0, position - window + 1) // self._block_size if window else 0
            for window in self._windows
        ]

    def use(self, path: list[Node]) -> None:
        """Record that a request goes on from a path of `match`."""
        for group, first in enumerate(self.first_seen(len(path))):
            for node in reversed(path[first:]):
                self._used[group].use(node)

    def store(self, salt: str, tokens: Int32, tables: list[list[int]]) -> list[list[int]]:
        """Add the full blocks of a request; afterwards it must hold what is returned.

        Args:
            salt: Separates those who may not share.
            tokens: [count * block_size] tokens.
            tables: By group, ``count`` blocks that the caller holds, `ABSENT` where released.

        Returns:
            The tables, with the tree's blocks where it had the same prefix already. The pools'
            holders are changed accordingly.
        """
        path = self._grow_path(salt, tokens)
        result = [list(table) for table in tables]
        for group, pool in enumerate(self._pools):
            used = self._used[group]
            for index in range(len(path) - 1, -1, -1):
                node, mine = path[index], result[group][index]
                theirs = node.blocks[group]
                if mine == ABSENT:
                    continue
                if theirs == mine:
                    used.touch(node)
                    continue
                if theirs == ABSENT:
                    pool.keep(mine)
                    node.blocks[group] = mine
                else:
                    pool.share(theirs)
                    pool.release([mine])
                    result[group][index] = theirs
                used.use(node)
        return result

    def evict(self, group: int, count: int) -> None:
        """Make ``count`` blocks of a group free; at most its pool's ``num_cached``."""
        pool = self._pools[group]
        victims: list[Node] = []
        for node in self._used[group]:
            if len(victims) == count:
                break
            if not pool.holders(node.blocks[group]):
                victims.append(node)
        # Without a full-attention block its node is of no use: the windowed groups' blocks go too.
        groups = (group,) if self._windows[group] else range(len(self._pools))
        for node in victims:
            self._used[group].evicted(node)
            for other in groups:
                if self._spill and node.blocks[other] != ABSENT:
                    self._spill.save(other, node.digest, node.blocks[other])
                self._forget(node, other)
            self._prune(node)

    def kept(self, group: int) -> list[int]:
        """All blocks that the cache keeps in a group, held or not."""
        return [node.blocks[group] for node in self._used[group]]

    def check_integrity(self) -> None:
        """Check the tree.

        Raises:
            RuntimeError: A node is unreachable, useless or has lost its block.
        """
        nodes = [node for root in self._roots.values() for node in descendants(root)]
        for group, window in enumerate(self._windows):
            having = {node for node in nodes if node.blocks[group] != ABSENT}
            if having != set(self._used[group]) or not (window or len(having) == len(nodes)):
                raise RuntimeError(f"KV group {group}: the prefix tree lost a block")
        if any(not node.children and set(node.blocks) == {ABSENT} for node in nodes):
            raise RuntimeError("the prefix tree has an empty leaf")
        if any(not root.children for root in self._roots.values()):
            raise RuntimeError("the prefix tree has an empty root")

    def _walk(self, salt: str, tokens: Int32) -> Iterator[Node]:
        """The nodes of as many leading blocks of ``tokens`` as there are."""
        node = self._roots.get(salt)
        for key in self._keys(tokens):
            node = node.children.get(key) if node else None
            if node is None:
                return
            yield node

    def _grow_path(self, salt: str, tokens: Int32) -> list[Node]:
        groups = len(self._windows)
        node = self._roots.get(salt)
        if node is None:
            root = root_digest(salt) if self._spill else b""
            node = self._roots[salt] = Node(salt.encode(), None, groups, root)
        path = []
        for key in self._keys(tokens):
            child = node.children.get(key)
            if child is None:
                digest = chain(node.digest, key) if self._spill else b""
                child = node.children[key] = Node(key, node, groups, digest)
            path.append(child)
            node = child
        return path

    def _restorable(self, salt: str, tokens: Int32, spill: Spill) -> _Plan:
        """The longest path over ``tokens`` [m * block_size] that tree and spill have together."""
        nodes = list(self._walk(salt, tokens))
        digest = root_digest(salt)
        run = [0] * len(self._windows)  # by group: blocks without a gap at the path's end
        spilled: list[tuple[int, int]] = []
        count = 0
        for index, key in enumerate(self._keys(tokens)):
            digest = chain(digest, key)
            for group in range(len(run)):
                kept = index < len(nodes) and nodes[index].blocks[group] != ABSENT
                if not kept and spill.has(group, digest):
                    spilled.append((group, index))
                elif not kept:
                    run[group] = -1
                run[group] += 1
            if any(not (window or have) for window, have in zip(self._windows, run, strict=True)):
                break
            needed = [index + 1 - first for first in self.first_seen(index + 1)]
            if all(have >= need for have, need in zip(run, needed, strict=True)):
                count = index + 1
        seen = self.first_seen(count)
        return _Plan(count, [(g, i) for g, i in spilled if seen[g] <= i < count])

    def _refill(self, node: Node, group: int, spill: Spill) -> int | None:
        """Fill a block for a node, which the caller holds then; None without room or contents."""
        pool = self._pools[group]
        if not pool.num_free and not pool.num_cached:
            return None
        if not pool.num_free:
            self.evict(group, 1)
        (block,) = pool.take(1)
        if not spill.load(group, node.digest, block):
            pool.release([block])
            return None
        pool.keep(block)
        node.blocks[group] = block
        self._used[group].use(node)
        return block

    def _keys(self, tokens: Int32) -> Iterator[bytes]:
        size = self._block_size
        for start in range(0, len(tokens), size):
            yield tokens[start : start + size].tobytes()

    def _forget(self, node: Node, group: int) -> None:
        if node.blocks[group] != ABSENT:
            self._pools[group].drop(node.blocks[group])
            node.blocks[group] = ABSENT
            self._used[group].remove(node)

    def _prune(self, node: Node) -> None:
        """Take out an empty leaf, and what is empty above it."""
        while not node.children and set(node.blocks) == {ABSENT}:
            parent = node.parent
            if parent is None:
                del self._roots[node.key.decode()]
                return
            del parent.children[node.key]
            node = parent


class _Plan(NamedTuple):
    """A path of ``length`` blocks; of those that are seen, the ``missing`` (group, index) must be
    restored."""

    length: int
    missing: list[tuple[int, int]]
