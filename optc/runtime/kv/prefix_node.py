"""`Node`: one full block of a prefix in the tree of the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator

ABSENT = -1


class Node:
    """One full block of a prefix.

    Args:
        key: Its tokens' bytes; a root's is its salt's.
        parent: The block before; None for a root.
        groups: Number of KV groups.
        digest: Of the prefix, if blocks are spilled or told of.

    Attributes:
        told: Routers know that it is there.
    """

    __slots__ = ("blocks", "children", "digest", "key", "parent", "told")

    def __init__(self, key: bytes, parent: Node | None, groups: int, digest: bytes = b"") -> None:
        self.key = key
        self.digest = digest
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.blocks = [ABSENT] * groups
        self.told = False


def descendants(root: Node) -> Iterator[Node]:
    """All nodes below one."""
    left = list(root.children.values())
    while left:
        node = left.pop()
        yield node
        left.extend(node.children.values())
