"""The multiple-choice knapsack: of each item one choice, the least loss within a size.

Relaxed, it is solved by the lower convex hulls of the items (Sinha and Zoltners, 1979): single
upgrades in the order of the loss that they save for their size. The last of them gives a price of
size, and with it a bound on what any choice of the remaining items can still reach. All sets of
choices that no other beats in size and loss, and that the bound does not rule out, are followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
#: Sets of choices that are followed at most; beyond, those of the best bounds. Models of hundreds
#: of tensors stay far below it.
MOST_STATES = 200_000


@dataclass(frozen=True)
class Choice:
    """One choice for an item.

    Attributes:
        size: At least 0.
        loss: What is to be as little as possible, summed over the items.
    """

    size: int
    loss: float


Items = Sequence[Sequence[Choice]]


def least_size(items: Items) -> int:
    """The size of the smallest choices."""
    return sum(min(choice.size for choice in choices) for choices in items)


def choose(items: Items, most: int) -> list[int]:
    """The index of each item's choice, such that the sizes add up to ``most`` or less and the
    losses to as little as possible; the same for the same items, in any process.

    Raises:
        ValueError: The smallest choices are larger together.
    """
    if least_size(items) > most:
        raise ValueError(f"{least_size(items)} at least, but {most} are allowed")
    indices, price = _by_upgrades(items, most)
    limit = _loss(items, indices)
    followed = _follow(items, most, price, limit)
    return followed if followed and _loss(items, followed) < limit else indices


def _loss(items: Items, indices: Sequence[int]) -> float:
    return sum(choices[i].loss for choices, i in zip(items, indices, strict=True))


def _by_upgrades(items: Items, most: int) -> tuple[list[int], float]:
    """Good choices, and the price of size: loss that the first upgrade without room would save for
    each unit of size; 0 if all had room."""
    hulls = [_hull(choices) for choices in items]
    steps = []
    for item, hull in enumerate(hulls):
        for place in range(1, len(hull)):
            low, high = (items[item][hull[i]] for i in (place - 1, place))
            saved = (low.loss - high.loss) / (high.size - low.size)
            steps.append((-saved, item, place, high.size - low.size))
    free = most - sum(items[item][hull[0]].size for item, hull in enumerate(hulls))
    places, price = [0] * len(items), 0.0
    for saved, item, place, size in sorted(steps):
        if size <= free and places[item] == place - 1:
            places[item], free = place, free - size
        elif not price:
            price = -saved
    return [hull[place] for hull, place in zip(hulls, places, strict=True)], price


def _hull(choices: Sequence[Choice]) -> list[int]:
    """Indices of the choices on the lower convex hull, the smallest first."""
    order = sorted(range(len(choices)), key=lambda i: (choices[i].size, choices[i].loss))
    hull: list[int] = []
    for i in order:
        if hull and choices[i].loss >= choices[hull[-1]].loss:
            continue
        while len(hull) > 1 and _above(*(choices[j] for j in (*hull[-2:], i))):
            hull.pop()
        hull.append(i)
    return hull


def _above(a: Choice, b: Choice, c: Choice) -> bool:
    """True if b is on the line from a to c, or above it."""
    return (a.loss - b.loss) * (c.size - a.size) <= (a.loss - c.loss) * (b.size - a.size)


def _follow(items: Items, most: int, price: float, limit: float) -> list[int] | None:
    """The best choices, by all that can be better than the loss ``limit``; None if nothing is."""
    tables = [
        (np.array([c.size for c in choices]), np.array([c.loss for c in choices]))
        for choices in items
    ]
    # of the items behind each one: the least sizes, and the least of loss + price * size
    sizes = np.cumsum([0, *(int(size.min()) for size, _ in reversed(tables))])[::-1][1:]
    priced = [float((loss + price * size).min()) for size, loss in reversed(tables)]
    bounds = np.cumsum([0.0, *priced])[::-1][1:]
    size, loss = np.zeros(1, np.int64), np.zeros(1)
    trail: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = []
    for (own_size, own_loss), behind, bound in zip(tables, sizes, bounds, strict=True):
        new_size = (size[:, None] + own_size).ravel()
        new_loss = (loss[:, None] + own_loss).ravel()
        reach = new_loss + price * (new_size - most) + bound
        kept = np.flatnonzero((new_size + behind <= most) & (reach <= limit))
        if len(kept) > MOST_STATES:
            kept = kept[np.argsort(reach[kept], kind="stable")[:MOST_STATES]]
        kept = kept[_efficient(new_size[kept], new_loss[kept])]
        if not len(kept):
            return None
        trail.append((kept // len(own_size), kept % len(own_size)))
        size, loss = new_size[kept], new_loss[kept]
    state, chosen = int(loss.argmin()), list[int]()
    for parents, choices in reversed(trail):
        chosen.append(int(choices[state]))
        state = int(parents[state])
    return chosen[::-1]


def _efficient(size: npt.NDArray[np.int64], loss: Float64) -> npt.NDArray[np.intp]:
    """Indices of those that no other beats in both."""
    order = np.lexsort((loss, size))
    lost = loss[order]
    before = np.minimum.accumulate(np.concatenate([[np.inf], lost]))[:-1]
    kept: npt.NDArray[np.intp] = order[lost < before]
    return kept
