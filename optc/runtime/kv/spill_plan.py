"""`plan_restore`: what of a prefix the tree and the spill have together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from optc.runtime.kv.prefix_node import ABSENT, Node
from optc.runtime.spill.spill import Spill, chain


class Lost(NamedTuple):
    """A block of a path that is only in the spill: its place on the path, and its key there."""

    group: int
    place: int
    digest: bytes


class Plan(NamedTuple):
    """A path of ``length`` blocks; ``missing``, in order, are those to restore that are seen."""

    length: int
    missing: list[Lost]


def plan_restore(
    root: bytes,
    keys: Iterable[bytes],
    nodes: Sequence[Node],
    windows: Sequence[int],
    first_seen: Callable[[int], list[int]],
    spill: Spill,
) -> Plan:
    """The longest path that a request can go on from, if what is missing is restored.

    Args:
        root: Digest of the request's salt.
        keys: Its full blocks, one after the other.
        nodes: Those of the tree for the first of them.
        windows: Window of each KV group; 0 is full attention.
        first_seen: By group, the first block that the row after so many full blocks sees.
        spill: Where the others may be.
    """
    digest = root
    run = [0] * len(windows)  # by group: blocks without a gap at the path's end
    spilled: list[Lost] = []
    count = 0
    for index, key in enumerate(keys):
        digest = chain(digest, key)
        for group in range(len(run)):
            kept = index < len(nodes) and nodes[index].blocks[group] != ABSENT
            if not kept and spill.has(group, digest):
                spilled.append(Lost(group, index, digest))
            elif not kept:
                run[group] = -1
            run[group] += 1
        if any(not (window or have) for window, have in zip(windows, run, strict=True)):
            break
        needed = [index + 1 - first for first in first_seen(index + 1)]
        if all(have >= need for have, need in zip(run, needed, strict=True)):
            count = index + 1
    seen = first_seen(count)
    return Plan(count, [lost for lost in spilled if seen[lost.group] <= lost.place < count])
