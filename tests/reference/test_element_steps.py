"""Element-wise operations against counts by hand."""

from __future__ import annotations

import pytest

from optc.reference.element_steps import element_steps
from optc.reference.partition import partition
from tests.support.dense_models import FF, HEAD, HKV, D, H, dense_model


@pytest.mark.parametrize(("fused", "of_score"), [(False, 10), (True, 1)])
@pytest.mark.parametrize("window", [64, 512])
def test_a_layer_takes_its_norms_rotations_scores_and_gates(
    window: int, fused: bool, of_score: int
) -> None:
    (block,) = partition(dense_model(1)).blocks
    norms = 4 * 3 * D  # the last one is in the block, before the head
    rotated = 4 * (H + HKV) * HEAD
    gates = (8 + 1 + 1) * FF  # sigmoid, and two products
    assert element_steps(block.nodes, window, fused=fused) == (
        norms + rotated + of_score * H * window + gates + 2 * D  # and two sums of the stream
    )


def test_layers_take_as_much_each() -> None:
    one, two = (element_steps(dense_model(layers).graph, 64) for layers in (1, 2))
    three = element_steps(dense_model(3).graph, 64)
    assert three - two == two - one > 0
