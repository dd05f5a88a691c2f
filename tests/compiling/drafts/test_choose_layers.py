"""How many first layers draft best: agreement against whole models, costs, and the prediction."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.compiling.drafts.choose_layers import (
    ROW_COST,
    Candidate,
    LayerChoice,
    choose_layers,
    cost_of,
    layers_to_try,
    likeliest,
    predict,
    verify_costs,
)
from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.proof.reference.partition import partition
from tests.support.experts.models import Experts, expert_model
from tests.support.models import Dense, dense_model

SHAPE = Dense(windows=(0, 5, 0))
TOKENS = np.random.default_rng(1).integers(0, SHAPE.vocab, (3, 20)).astype(np.int32)


def argmax_of(model: ir.Model) -> np.ndarray:
    """The likeliest tokens by one run of the whole model."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    positions = np.tile(np.arange(TOKENS.shape[1]), (len(TOKENS), 1))
    inputs = {"input_ids": TOKENS.astype(np.int64), "position_ids": positions}
    return session.run(None, inputs)[0].argmax(-1).ravel()


def test_agreement_is_that_of_the_models_cut_by_hand() -> None:
    whole = argmax_of(dense_model(SHAPE))
    np.testing.assert_array_equal(likeliest(dense_model(SHAPE), TOKENS, 1), whole)
    choice = choose_layers(dense_model(SHAPE), TOKENS, 1)
    assert [one.layers for one in choice.candidates] == [1, 2]
    for one in choice.candidates:
        cut = dense_model(SHAPE)
        keep_first_layers(cut, one.layers)
        assert one.agreement == np.mean(argmax_of(cut) == whole)


def test_a_draft_step_costs_its_share_of_the_weights() -> None:
    model = dense_model(SHAPE)
    parts = partition(model)
    costs = [cost_of(parts, layers) for layers in (1, 2, 3)]
    assert costs[2] == 1.0
    assert costs[1] - costs[0] == pytest.approx(costs[2] - costs[1], rel=0.02), "layers are alike"
    head = parts.head.inputs[1]
    assert head is not None
    assert head.shape is not None
    weights = sum(
        np.prod(value.shape.numpy()) for value in model.graph.initializers.values() if value.shape
    )
    assert costs[0] > np.prod(head.shape.numpy()) / weights


def test_of_experts_a_step_reads_those_that_its_rows_choose() -> None:
    """2 of 6 by each row of the step; a dense model reads the same weights for any number."""
    assert verify_costs(partition(dense_model(SHAPE))) == [1 + n * ROW_COST for n in range(9)]
    model = expert_model(SHAPE, Experts(count=6, chosen=2))
    parts = partition(model)
    sizes = {
        name: int(np.prod(value.shape.numpy()))
        for name, value in model.graph.initializers.items()
        if value.shape is not None
    }
    experts = sum(size for name, size in sizes.items() if name.endswith(("gate_up", "down")))
    head = parts.head.inputs[1]
    assert head is not None
    nodes = [node for block in parts.blocks for node in block.nodes]
    names = [v.name for node in nodes for v in node.inputs if v is not None and v.name in sizes]
    rest = sum(sizes[name] for name in names) - experts + sizes[str(head.name)]
    read = [rest + experts * (1 - (2 / 3) ** rows) for rows in range(1, 10)]
    expected = [one / read[0] + n * ROW_COST for n, one in enumerate(read)]
    assert verify_costs(parts) == pytest.approx(expected)
    assert cost_of(parts, len(parts.blocks)) == 1


@pytest.mark.parametrize(("agreement", "cost"), [(0.9, 0.1), (0.5, 0.3), (0.1, 0.2)])
def test_the_prediction_is_the_best_of_all_lengths(agreement: float, cost: float) -> None:
    found = predict(2, agreement, cost, [1 + n * 0.03 for n in range(9)])
    by_hand = {
        drafts: (1 - agreement ** (drafts + 1)) / (1 - agreement) / (1 + drafts * (cost + 0.03))
        for drafts in range(1, 9)
    }
    assert found.speedup == pytest.approx(max(by_hand.values()))
    assert by_hand[found.drafts] == pytest.approx(found.speedup)


@pytest.mark.parametrize(
    ("count", "expected"), [(2, [1]), (6, [1, 2, 3]), (30, [1, 2, 3, 5, 7, 10, 15])]
)
def test_few_numbers_are_tried(count: int, expected: list[int]) -> None:
    assert layers_to_try(count) == expected


def test_where_nothing_pays_it_says_what_was_best() -> None:
    candidates = (Candidate(1, 0.15, 0.29, 1, 0.88), Candidate(3, 0.28, 0.57, 1, 0.8))
    assert LayerChoice(candidates, None).warning == (
        "no self-draft: the first layers say too little of the whole model's next token; "
        "the best, 1, agree in 15% of places (predicted speed 0.88)"
    )
    assert LayerChoice(candidates, 1).warning == ""
    assert LayerChoice(candidates, None).to_json()["candidates"][1]["agreement"] == 0.28
