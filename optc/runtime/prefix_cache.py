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

from optc.runtime.block_pool import BlockPool
from optc.runtime.eviction import Eviction, Order, make_order
from optc.runtime.executable import Int32

ABSENT = -1


class Node:
    """One full block of a prefix.

    Args:
        key: Its tokens' bytes; a root's is its salt's.
        parent: The block before; None for a root.
        groups: Number of KV groups.
    """

    __slots__ = ("blocks", "children", "key", "parent")

    def __init__(self, key: bytes, parent: Node | None, groups: int) -> None:
        self.key = key
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.blocks = [ABSENT] * groups


class PrefixCache:
    """The tree over the blocks of all groups' pools.

    Args:
        windows: Window of each group in tokens; 0 is full attention.
        pools: The groups' pools.
        block_size: Tokens a block.
        eviction: Which block goes first.
    """

    def __init__(
        self,
        windows: tuple[int, ...],
        pools: tuple[BlockPool, ...],
        block_size: int,
        eviction: Eviction = "lru",
    ) -> None:
        self._windows = windows
        self._pools = pools
        self._block_size = block_size
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
        for node in victims:
            self._used[group].evicted(node)
            if self._windows[group]:
                self._forget(node, group)
            else:  # without it the node is of no use, so the windowed groups' blocks go too
                for other in range(len(self._pools)):
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
        nodes = [node for root in self._roots.values() for node in _descendants(root)]
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
            node = self._roots[salt] = Node(salt.encode(), None, groups)
        path = []
        for key in self._keys(tokens):
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = Node(key, node, groups)
            path.append(child)
            node = child
        return path

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


def _descendants(root: Node) -> Iterator[Node]:
    left = list(root.children.values())
    while left:
        node = left.pop()
        yield node
        left.extend(node.children.values())
