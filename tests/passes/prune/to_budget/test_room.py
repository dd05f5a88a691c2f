"""A budget before and after neurons went."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.channels import NEURONS, find_channels
from optc.passes.prune.to_budget.places import places_of
from optc.passes.prune.to_budget.room import Room
from optc.passes.quantize.budget.amounts import Budget
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.quantize_weights import QuantizeWeights

LATER = [QuantizeWeights(bits=4, group_size=32, symmetric=False, group_scales="int")]


@pytest.mark.parametrize(("budget", "kept"), [("2.7bpw", False), ("6.5MB", True), ("1KB", True)])
def test_bits_a_weight_become_more_for_fewer_weights(
    model: ir.Model, budget: str, kept: bool
) -> None:
    groups = groups_of(model, head=True)
    places = places_of(find_channels(model, NEURONS, PassReport()), groups, (0.5,), 32)
    room = Room.of(model, groups, budget, LATER, "here")
    assert room.left(places, [96, 96]) is None
    text = room.left(places, [96, 64])
    if kept:
        assert text is None
        assert room.most_pruned == room.most
        return
    assert text is not None
    weights = room.present.weights
    now = float(Budget.read(text, "here").amount) * (weights - 3 * 64 * 32)
    assert 2.7 * weights - weights / 1e6 <= now <= 2.7 * weights
    assert now >= room.most_pruned
