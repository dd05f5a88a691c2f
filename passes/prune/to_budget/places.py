"""Channels that may lose units, the weights that become smaller with them, and numbers to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.shapes import initializers_of
from optc.passes.prune.to_budget.degrees import counts_of
from optc.passes.prune.to_budget.joint import Structure
from optc.passes.quantize.budget.groups import Group


@dataclass(frozen=True)
class Places:
    """Of a model.

    Attributes:
        channels: Each with the indices of its groups of weights.
        counts: Numbers of units that may stay of each, all of them first.
    """

    channels: Sequence[tuple[Channels, tuple[int, ...]]]
    counts: Sequence[Sequence[int]]


def places_of(
    channels: Sequence[Channels], groups: Sequence[Group], shares: Sequence[float], multiple: int
) -> Places:
    """The places of these channels, each group of weights in one of them at most."""
    owner = {one.initializer: i for i, group in enumerate(groups) for one in group.linears}
    taken: set[int] = set()
    found = []
    for one in channels:
        own = tuple(dict.fromkeys(owner[value] for value in initializers_of([one])))
        if taken.isdisjoint(own):
            taken.update(own)
            found.append((one, own))
    return Places(found, [counts_of(one, shares, multiple) for one, _ in found])


def unmeasured(places: Places) -> list[Structure]:
    """Structures where nothing was measured: that a weight goes costs more than any format."""
    return [
        Structure(
            one,
            own,
            tuple(counts),
            tuple(float((one.units - n) * one.weights_each) for n in counts),
        )
        for (one, own), counts in zip(places.channels, places.counts, strict=True)
    ]
