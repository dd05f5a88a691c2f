"""One knapsack of neurons and formats, beside every other choice."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.numerics.scheme import Scheme
from optc.passes.prune.structured.channels import NEURONS, find_channels
from optc.passes.prune.to_budget.joint import Items, Structure
from optc.passes.prune.to_budget.places import places_of, unmeasured
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.budget.sensitivity import Rated
from optc.passes.quantize.layer_schemes import stored_bits

FORMATS = (
    Scheme(2, 32, False, integer_scales=True),
    Scheme(4, 32, False, integer_scales=True),
    Scheme(8, 0, True),
)


@pytest.fixture
def items(model: ir.Model) -> Items:
    """Losses at random, falling with bits, the attentions and the head in one format."""
    groups = groups_of(model, head=True)
    channels = find_channels(model, NEURONS, PassReport())
    places = places_of(channels, groups, (0.67, 0.34), 32)
    assert places.counts == [[96, 64, 32]] * 2
    taken = {index for _, own in places.channels for index in own}
    rng = np.random.default_rng(3)
    rated = [
        [Rated(s, float(rng.uniform(0.5, 1.5) * 4.0**-s.bits), True) for s in FORMATS]
        for _ in groups
    ]
    rated = [own if i in taken else own[1:2] for i, own in enumerate(rated)]
    structures = [
        Structure(one.channels, one.groups, one.left, (0.0, *rng.uniform(0.001, 0.05, 2)))
        for one in unmeasured(places)
    ]
    return Items(groups, rated, structures)


def every_choice(items: Items) -> list[tuple[int, float]]:
    """Sizes and losses of all of them, counted from the shapes of the test's model."""
    fixed = 0
    taken = {index for one in items.structures for index in one.groups}
    for i, group in enumerate(items.groups):
        if i not in taken:
            fixed += group.bits(items.rated[i][0].scheme)
    rest = sum(items.rated[i][0].kl for i in range(len(items.groups)) if i not in taken)
    per = []
    for one in items.structures:
        up, down = sorted(one.groups, key=lambda i: len(items.groups[i].linears), reverse=True)
        own = []
        for (left, lost), a, b in product(
            zip(one.left, one.losses, strict=True), items.rated[up], items.rated[down]
        ):
            size = 2 * stored_bits(a.scheme, left, 64) + stored_bits(b.scheme, 64, left)
            own.append((size, lost + a.kl + b.kl))
        per.append(own)
    return [(fixed + a + b, rest + x + y) for (a, x), (b, y) in product(*per)]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_nothing_of_the_same_size_loses_less(items: Items, share: float) -> None:
    choices = every_choice(items)
    least, largest = min(size for size, _ in choices), max(size for size, _ in choices)
    assert items.least() == least
    most = int(least + share * (largest - least))
    chosen = items.choose(most)
    assert chosen.bits <= most
    assert chosen.loss == pytest.approx(min(loss for size, loss in choices if size <= most))
    assert (chosen.bits, pytest.approx(chosen.loss)) in choices


def test_losses_by_pruning_may_count_more(items: Items) -> None:
    most = Items(items.groups, items.rated, ()).least() + 2000
    plain, careful = items.choose(most), items.choose(most, 1e6)
    assert sum(plain.left) < sum(careful.left) == 192


def test_bits_alone_leave_all_units(items: Items) -> None:
    alone = items.alone(10**9)
    assert alone is not None
    assert alone.left == (96, 96)
    assert items.alone(items.least()) is None
