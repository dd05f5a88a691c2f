from __future__ import annotations

from optc.runtime.kv.prefix_node import ABSENT, Node, descendants


def child(parent: Node, key: bytes) -> Node:
    parent.children[key] = Node(key, parent, 2)
    return parent.children[key]


def test_a_new_node_has_no_block_in_any_group() -> None:
    node = Node(b"k", None, 3, b"digest")
    assert node.blocks == [ABSENT] * 3
    assert (node.key, node.parent, node.digest, node.children) == (b"k", None, b"digest", {})
    node.blocks[1] = 5
    assert Node(b"l", node, 2).blocks == [-1, -1]


def test_all_below_a_node_are_its_descendants_and_it_is_none() -> None:
    root = Node(b"", None, 2)
    first, second = child(root, b"1"), child(root, b"2")
    deep = child(child(first, b"3"), b"4")
    assert deep.parent is not None
    assert set(descendants(root)) == {first, second, deep.parent, deep}
    assert list(descendants(first)) == [deep.parent, deep]
    assert list(descendants(deep)) == []
