"""Two streams: one is the blockwise reference's, the other has its weights replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir
import pytest

from optc.proof.reference import two_streams as module
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.choice import run_products
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.submodel import Array
from optc.proof.reference.two_streams import Pair, Seen, run_two_streams
from tests.support.dense_models import V, dense_model

FLOATS = run_products(("float32", "float32"), 1)


class Scaled:
    """Multiplies all weights by a factor."""

    def __init__(self, factor: float | None) -> None:
        self.factor = factor
        self.seen: list[str] = []
        self.blocks: list[Pair] = []
        self.inputs: list[Pair] = []
        self.hidden: Pair | None = None

    def compared(self, stage: Stage) -> Iterable[ir.Value]:
        return [linear.x for linear in stage.linears]

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        for x in self.compared(stage):
            self.inputs.append(Pair(seen.changed[x], seen.original[x]))
        self.seen += [linear.name for linear in stage.linears]
        if self.factor is None:
            return {}
        return {
            one.initializer: one.weight.read_rows(0, one.weight.rows_shape[0]) * self.factor
            for one in stage.linears
        }

    def block_done(self, block: Block, values: Pair) -> None:
        self.blocks.append(values)

    def head_input(self, hidden: Pair) -> None:
        self.hidden = hidden


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, V, (5, 12), np.int32)


def hidden_of(model: ir.Model, tokens: np.ndarray) -> np.ndarray:
    return BlockwiseReference(model, 1).run(tokens).copy()


def scale_weights(model: ir.Model, names: list[str], factor: float) -> None:
    for name in names:
        value = model.graph.initializers[name]
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(factor), name=name)


@pytest.mark.parametrize("spilled", [False, True])
def test_both_streams_are_those_of_whole_runs(
    spilled: bool, tokens: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", 24)  # chunks of 2, 2 and 1
    if spilled:
        monkeypatch.setattr(module, "HIDDEN_BYTES", 0)
    replacer = Scaled(0.9)
    run_two_streams(dense_model(2), tokens, replacer, FLOATS, 1)
    assert replacer.hidden is not None
    assert len(set(replacer.seen)) == len(replacer.seen) > 6
    expected = hidden_of(dense_model(2), tokens).reshape(replacer.hidden.original.shape)
    np.testing.assert_allclose(replacer.hidden.original, expected, atol=1e-5)
    changed = dense_model(2)
    scale_weights(changed, replacer.seen, 0.9)
    np.testing.assert_allclose(
        replacer.hidden.changed, hidden_of(changed, tokens).reshape(expected.shape), atol=1e-5
    )
    assert len(replacer.blocks) == 2


def test_without_replacements_it_runs_once(
    tokens: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    replacer = Scaled(None)
    run_two_streams(dense_model(2), tokens, replacer, FLOATS, 1)
    assert replacer.hidden is not None
    assert replacer.hidden.changed is replacer.hidden.original


def test_each_run_has_its_own_products(tokens: np.ndarray) -> None:
    exact, near = Scaled(0.9), Scaled(0.9)
    run_two_streams(dense_model(2), tokens, exact, FLOATS, 1)
    run_two_streams(dense_model(2), tokens, near, run_products(("float32", "bfloat16"), 1), 1)
    assert exact.hidden is not None
    assert near.hidden is not None
    # PyTorch, which is there for one of them, computes attention of both
    np.testing.assert_allclose(near.hidden.original, exact.hidden.original, atol=1e-5)
    lost = near.hidden.changed - exact.hidden.changed
    assert 1e-5 < np.linalg.norm(lost) / np.linalg.norm(exact.hidden.changed) < 0.02


def test_products_in_bfloat16_give_what_float32_gives_but_for_their_rounding(
    tokens: np.ndarray,
) -> None:
    exact, near = Scaled(0.9), Scaled(0.9)
    run_two_streams(dense_model(2), tokens, exact, FLOATS, 1)
    run_two_streams(dense_model(2), tokens, near, run_products(("bfloat16", "bfloat16"), 1), 1)
    assert exact.hidden is not None
    assert near.hidden is not None
    for name in ("changed", "original"):
        wanted, found = getattr(exact.hidden, name), getattr(near.hidden, name)
        lost = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert 1e-5 < lost < 0.02
    assert {pair.changed.dtype.name for pair in near.inputs} == {
        "bfloat16"
    }  # only layers read them
    assert {pair.changed.dtype.name for pair in near.blocks} == {"float32"}
