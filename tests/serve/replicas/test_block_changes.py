"""What a replica tells of its prefix cache, against a set."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.kv.prefix_node import Node
from optc.serve.replicas.block_changes import BlockChanges


def node(number: int) -> Node:
    return Node(b"", None, 1, number.to_bytes(8, "big"))


@settings(max_examples=200, deadline=None)
@given(
    kept=st.integers(1, 12),
    actions=st.lists(st.one_of(st.integers(0, 5), st.just("ask"), st.just("close")), max_size=60),
)
def test_who_asks_knows_what_is_there(kept: int, actions: list[int | str]) -> None:
    log, there = BlockChanges(kept), set[int]()
    known, number = set[int](), 0
    for action in [*actions, "ask"]:
        if action == "close":
            log.close()
            there = set()
        elif action == "ask":
            changes = log.since(number)
            if changes.whole:
                known = set()
            assert changes.whole or not set(changes.stored) & set(changes.removed)
            known = (known | set(changes.stored)) - set(changes.removed)
            number = changes.number
            assert known == there
            assert log.since(number).stored == log.since(number).removed == ()
        elif isinstance(action, int) and action in there:
            log.removed(node(action))
            there.remove(action)
        elif isinstance(action, int):
            assert log.stored("", node(action))
            there.add(action)
        log.flush()


def test_who_knows_nothing_or_of_another_life_gets_all() -> None:
    log = BlockChanges(4)
    for number in range(9):
        log.stored("", node(number))
    assert log.since(0).whole
    assert set(log.since(0).stored) == set(range(9))
    assert log.since(99).whole  # a number of the replica before it, of the same name
    assert set(log.since(7).stored) == {7, 8}
