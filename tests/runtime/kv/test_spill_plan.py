"""What of a prefix a request can go on from, if what is only in the spill is restored."""

from __future__ import annotations

import pytest

from optc.runtime.kv.prefix_node import Node
from optc.runtime.kv.spill_plan import Plan, plan_restore
from optc.runtime.spill.spill import Spill, chain, root_digest
from optc.runtime.spill.stores import HostStore
from tests.runtime.support.toy import ToyExecutable, toy_spec

ROOT = root_digest("")
KEYS = [b"a", b"b", b"c", b"d"]


def digest(index: int) -> bytes:
    found = ROOT
    for key in KEYS[: index + 1]:
        found = chain(found, key)
    return found


def plan(windows: tuple[int, ...], kept: list[str], spilled: list[str]) -> Plan:
    """For blocks of one token; ``kept`` and ``spilled`` name group and place, for example 0b."""
    executable = ToyExecutable(toy_spec(windows))
    executable.allocate_kv((4,) * len(windows), 2)
    spill = Spill(HostStore(1 << 20), executable)
    for name in spilled:
        spill.save(int(name[0]), digest("abcd".index(name[1])), 0)
    nodes = []
    for key in KEYS:
        node = Node(key, None, len(windows))
        for group in range(len(windows)):
            if f"{group}{key.decode()}" in kept:
                node.blocks[group] = 3
        if any(block >= 0 for block in node.blocks):
            nodes.append(node)

    def first_seen(count: int) -> list[int]:
        return [max(0, count - window + 1) if window else 0 for window in windows]

    made = plan_restore(ROOT, KEYS, nodes, windows, first_seen, spill)
    assert all(lost.digest == digest(lost.place) for lost in made.missing)
    return made


def names(made: Plan) -> list[str]:
    return [f"{lost.group}{'abcd'[lost.place]}" for lost in made.missing]


@pytest.mark.parametrize(
    ("windows", "kept", "spilled", "length", "missing"),
    [
        ((0,), "0a", "0b 0c", 3, "0b 0c"),
        ((0,), "0a", "0a 0c", 1, ""),  # a gap
        ((0,), "", "0b", 0, ""),
        ((0, 2), "0a 1a 0b", "0c 0d 1d", 4, "0c 0d 1d"),  # the next row sees d and itself
        ((0, 2), "0a", "1a 0b 1b 0c 1c 0d 1d", 4, "0b 0c 0d 1d"),  # what nobody sees is left
        ((0, 3), "0a 1a 0b", "0c 0d 1d", 1, ""),  # it sees c as well
        ((0, 2), "0a 1a", "0b 0c 1c 0d", 3, "0b 0c 1c"),  # the end without its window is no use
        ((2,), "", "0c", 3, "0c"),  # without full attention the beginning is not needed
        ((2, 0), "1a", "0b 1b", 2, "0b 1b"),
    ],
)
def test_the_longest_path_and_what_it_lacks(
    windows: tuple[int, ...], kept: str, spilled: str, length: int, missing: str
) -> None:
    made = plan(windows, kept.split(), spilled.split())
    assert (made.length, names(made)) == (length, missing.split())
