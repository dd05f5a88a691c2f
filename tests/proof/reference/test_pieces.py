"""What blocks share, and the head by tiles of the vocabulary."""

from __future__ import annotations

import numpy as np

from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import partition
from optc.proof.reference.pieces import HeadPieces, block_inputs, evaluate_shared
from tests.support.dense_models import HEAD, D, V, dense_model
from tests.support.models import Dense
from tests.support.models import dense_model as other_model


def test_values_of_positions_are_computed_once_for_all_blocks() -> None:
    model = dense_model(2)
    parts = partition(model)
    positions = np.array([[0, 3, 7]])
    shared = evaluate_shared(model, parts, positions, 1)
    angles = positions[..., None] * 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
    cosines, sines = (shared[value.name or ""] for value in parts.shared)
    np.testing.assert_allclose(cosines, np.cos(angles), atol=1e-5)
    np.testing.assert_allclose(sines, np.sin(angles), atol=1e-5)
    assert block_inputs(parts.blocks[1], parts) == [parts.blocks[0].result, *parts.shared]


def test_without_positions_there_is_nothing_to_share() -> None:
    model = other_model(Dense(rotary_dim=0))
    parts = partition(model)
    assert evaluate_shared(model, parts, np.zeros((1, 3), np.int64), 1) == {}
    assert block_inputs(parts.blocks[0], parts) == [parts.embedded]


def test_tiles_of_the_head_are_the_whole_head() -> None:
    model = dense_model(1, softcap=3.0, bias=True)
    pieces = HeadPieces(model, partition(model))
    assert pieces.vocab_size == V
    part = open_part(model, pieces.nodes, pieces.inputs, [pieces.logits], 1)
    hidden = np.random.default_rng(0).standard_normal((1, 4, D)).astype(np.float32)
    tiles = [pieces.tile(*tile) for tile in [(0, 40), (40, 80), (80, V)]]
    logits = [part.run([hidden, rows, *others])[0] for rows, others in tiles]
    weight = model.graph.initializers["head"].const_value
    bias = model.graph.initializers["head_bias"].const_value
    assert weight is not None
    assert bias is not None
    want = 3 * np.tanh((hidden @ weight.numpy() + bias.numpy()) / 3)
    np.testing.assert_allclose(np.concatenate(logits, axis=-1), want, rtol=1e-4, atol=1e-4)
