"""The guesses of Medusa's heads that a tree of drafts holds: the likeliest ones.

The chance that a node is accepted is the product of the accept rates of the guesses on its path,
measured when the heads were trained (Cai et al., 2024, section 2.3.3). A tree of n nodes holds the
n nodes with the largest chances; a node's parent never has a smaller one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Shape(NamedTuple):
    """A tree of guesses, the likeliest path first and every node behind its parent.

    Attributes:
        ranks: [n] which guess of its head each node is.
        depths: [n] which head it is from.
        parents: [n] its parent, -1 at the top.
    """

    ranks: list[int]
    depths: list[int]
    parents: list[int]


def likeliest(rates: Sequence[Sequence[float]], most: int) -> list[tuple[tuple[int, ...], float]]:
    """At most ``most`` nodes in order of their chances: the ranks on the path, and the chance.

    Args:
        rates: By head and rank; ranks that are more often right come first.
        most: Number of nodes.
    """
    found: list[tuple[tuple[int, ...], float]] = []
    waiting: list[tuple[float, tuple[int, ...]]] = [(-rates[0][0], (0,))]
    while waiting and len(found) < most:
        chance, path = heapq.heappop(waiting)
        found.append((path, -chance))
        depth, rank = len(path), path[-1]
        if depth < len(rates):
            heapq.heappush(waiting, (chance * rates[depth][0], (*path, 0)))
        own = rates[depth - 1]
        if rank + 1 < len(own) and own[rank] > 0:
            next_chance = chance / own[rank] * min(own[rank], own[rank + 1])
            heapq.heappush(waiting, (next_chance, (*path[:-1], rank + 1)))
    return found


def shape_of(paths: Sequence[tuple[int, ...]]) -> Shape:
    """The tree with a node for each of ``paths``, which hold every prefix of their own."""
    ordered = sorted(paths)
    places = {path: index for index, path in enumerate(ordered)}
    return Shape(
        [path[-1] for path in ordered],
        [len(path) - 1 for path in ordered],
        [places.get(path[:-1], -1) for path in ordered],
    )
