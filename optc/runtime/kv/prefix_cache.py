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
- Eviction (`optc.runtime.kv.eviction`) takes the first block in its order that nobody holds, in a
  full-attention group only of nodes without children, whatever the order says.
- Nothing is evicted while a path is filled again from the spill: the room is made before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.block_pool import BlockPool
from optc.runtime.kv.eviction import Eviction, Order, make_order
from optc.runtime.kv.prefix_node import ABSENT, Node, descendants
from optc.runtime.kv.spill_plan import Lost, plan_restore
from optc.runtime.spill.spill import Spill, chain, root_digest


class BlockLog(Protocol):
    """Told of blocks that prefixes can be taken from (`optc.runtime.kv_events.events`)."""

    def stored(self, salt: str, node: Node) -> bool:
        """A block is there; False if it is not told of, so that its end is not either."""
        ...

    def removed(self, node: Node) -> None:
        """A block is gone."""
        ...


class PrefixCache:
    """The tree over the blocks of all groups' pools.

    Args:
        windows: Window of each group in tokens; 0 is full attention.
        pools: The groups' pools.
        block_size: Tokens a block.
        eviction: Which block goes first.
        spill: Where the contents of evicted blocks go; None is nowhere.
        log: Told of blocks that come and go; None is nobody.
    """

    def __init__(
        self,
        windows: tuple[int, ...],
        pools: tuple[BlockPool, ...],
        block_size: int,
        eviction: Eviction = "lru",
        spill: Spill | None = None,
        log: BlockLog | None = None,
    ) -> None:
        self._windows = windows
        self._log = log
        self._has_digests = spill is not None or log is not None
        self._pools = pools
        self._block_size = block_size
        self._spill = spill
        #: A group whose blocks all nodes have, if there is one of full attention.
        self._whole = windows.index(0) if 0 in windows else 0
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
        whole = tokens[: limit * self._block_size]
        nodes = list(self._walk(salt, whole))
        plan = plan_restore(
            root_digest(salt), self._keys(whole), nodes, self._windows, self.first_seen, self._spill
        )
        gained = plan.length - len(self.match(salt, tokens))
        if gained <= 0 or not self._spill.pays(gained * self._block_size, len(plan.missing)):
            return
        held = self._hold_seen(nodes[: plan.length], plan.length)
        missing = self._make_room(plan.missing, self._spill)
        path = self._grow_path(salt, tokens[: plan.length * self._block_size])
        for lost in missing:
            block = self._refill(path[lost.place], lost.group, self._spill)
            if block is None:
                break
            held[lost.group].append(block)
        self._drop_useless(path)
        for group, first in enumerate(self.first_seen(plan.length)):
            for node in reversed(path[first:]):
                if node.blocks[group] != ABSENT:
                    self._used[group].touch(node)
            self._pools[group].release(held[group])
        self._prune(path[-1])
        self._tell(salt, path)

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
        self._tell(salt, path)
        return result

    def _tell(self, salt: str, path: list[Node]) -> None:
        """Tell of the nodes of a path that can be used now and could not before."""
        if self._log is None:
            return
        for node in path:
            if node.told or node.blocks[self._whole] == ABSENT:
                continue
            node.told = self._log.stored(salt, node)

    def evict(self, group: int, count: int) -> None:
        """Make ``count`` blocks of a group free; at most its pool's ``num_cached``."""
        # Without a full-attention block its node is of no use: the windowed groups' blocks go too.
        groups = (group,) if self._windows[group] else range(len(self._pools))
        for node in self._victims(group, count):
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
            root = root_digest(salt) if self._has_digests else b""
            node = self._roots[salt] = Node(salt.encode(), None, groups, root)
        path = []
        for key in self._keys(tokens):
            child = node.children.get(key)
            if child is None:
                digest = chain(node.digest, key) if self._has_digests else b""
                child = node.children[key] = Node(key, node, groups, digest)
            path.append(child)
            node = child
        return path

    def _victims(self, group: int, count: int) -> list[Node]:
        """The first ``count`` nodes in the order whose block in a group may go; children before
        their parent where the group's attention is full."""
        pool, full = self._pools[group], not self._windows[group]
        victims: dict[Node, None] = {}
        passed: set[Node] = set()  # would go but for their children
        for first in self._used[group]:
            node: Node | None = None if pool.holders(first.blocks[group]) else first
            while node is not None and len(victims) < count:
                if full and any(child not in victims for child in node.children.values()):
                    passed.add(node)
                    break
                victims[node] = None
                node = node.parent if node.parent in passed else None
            if len(victims) == count:
                break
        return list(victims)

    def _hold_seen(self, nodes: list[Node], length: int) -> list[list[int]]:
        """By group, the blocks that ``nodes`` have of those that the row after a path of ``length``
        blocks sees. They are held from now on."""
        held = [
            [node.blocks[group] for node in nodes[first:] if node.blocks[group] != ABSENT]
            for group, first in enumerate(self.first_seen(length))
        ]
        for pool, blocks in zip(self._pools, held, strict=True):
            for block in blocks:
                pool.share(block)
        return held

    def _make_room(self, missing: list[Lost], spill: Spill) -> list[Lost]:
        """Make as many blocks free as those at the beginning of ``missing`` need that can be had;
        returns these."""
        left = [pool.num_free + pool.num_cached for pool in self._pools]
        fitting = []
        for lost in missing:
            if not left[lost.group]:
                break
            left[lost.group] -= 1
            fitting.append(lost)
        for lost in reversed(fitting):  # what is evicted now must not take their room in the spill
            spill.touch(lost.group, lost.digest)
        for group, pool in enumerate(self._pools):
            short = sum(lost.group == group for lost in fitting) - pool.num_free
            if short > 0:
                self.evict(group, short)
        return fitting

    def _refill(self, node: Node, group: int, spill: Spill) -> int | None:
        """Fill a free block for a node, which the caller holds then; None without contents."""
        pool = self._pools[group]
        (block,) = pool.take(1)
        if not spill.load(group, node.digest, block):
            pool.release([block])
            return None
        pool.keep(block)
        node.blocks[group] = block
        self._used[group].touch(node)
        return block

    def _drop_useless(self, path: list[Node]) -> None:
        """Forget the blocks of nodes that lack one of a full-attention group."""
        full = [group for group, window in enumerate(self._windows) if not window]
        for node in path:
            if any(node.blocks[group] == ABSENT for group in full):
                for group in range(len(self._pools)):
                    self._forget(node, group)

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
            if node.told and self._log is not None:
                self._log.removed(node)
            node = parent
