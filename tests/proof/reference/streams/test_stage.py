"""Stages: they begin with linear layers, hold all nodes, and together are the block."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.reference.block_run import BlockRun
from optc.proof.reference.partition import partition
from optc.proof.reference.pieces import evaluate_shared
from optc.proof.reference.streams.products import Float32Products
from optc.proof.reference.streams.stage import StageRun, stages_of
from tests.support.dense_models import D, dense_model


@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers_are_in_stages_by_what_they_wait_for(bias: bool) -> None:
    model = dense_model(2, bias=bias)
    for block in partition(model).blocks:
        stages = stages_of(block)
        assert sorted(n.name or "" for s in stages for n in s.nodes) == sorted(
            n.name or "" for n in block.nodes
        )
        of = [[linear.x for linear in stage.linears] for stage in stages]
        assert not of[0]
        assert all(len(set(inputs)) == 1 for inputs in of[1:])
        assert stages[-1].gives == (block.result,)
        made = {block.source}
        for stage in stages:
            assert set(stage.reads) <= made
            assert all(linear.x in made for linear in stage.linears)
            made |= set(stage.gives)


def test_the_stages_together_give_the_blocks_result() -> None:
    model = dense_model(2, bias=True)
    parts = partition(model)
    positions = np.tile(np.arange(6, dtype=np.int64), (3, 1))
    shared = evaluate_shared(model, parts, positions, 1)
    hidden = np.random.default_rng(0).standard_normal((3, 6, D)).astype(np.float32)
    block = parts.blocks[1]
    expected, _ = BlockRun(model, parts, block, shared, [], 1).run(hidden)
    values = {block.source: hidden}
    for stage in stages_of(block):
        run = StageRun(model, parts, stage, shared, 1)
        run.load(Float32Products())
        given = run.run([values[v] for v in stage.reads])
        values |= dict(zip(stage.gives, given, strict=True))
    np.testing.assert_allclose(values[block.result], expected, atol=1e-5)


def test_other_weights_are_used_until_its_own_are_loaded_again() -> None:
    model = dense_model(1)
    parts = partition(model)
    shared = evaluate_shared(model, parts, np.arange(6, dtype=np.int64)[None], 1)
    stages = stages_of(parts.blocks[0])
    hidden = np.random.default_rng(0).standard_normal((1, 6, D)).astype(np.float32)
    products = Float32Products()
    first = StageRun(model, parts, stages[0], shared, 1)
    values = {parts.blocks[0].source: hidden}
    values |= dict(zip(stages[0].gives, first.run([hidden]), strict=True))
    run = StageRun(model, parts, stages[1], shared, 1)
    run.load(products)
    reads = [values[v] for v in stages[1].reads]
    plain = run.run(reads)
    name = stages[1].linears[0].initializer
    run.load(products, {name: np.zeros(stages[1].linears[0].weight.rows_shape, np.float32)})
    assert any((a != b).any() for a, b in zip(plain, run.run(reads), strict=True))
    run.load(products)
    for before, after in zip(plain, run.run(reads), strict=True):
        np.testing.assert_array_equal(before, after)
