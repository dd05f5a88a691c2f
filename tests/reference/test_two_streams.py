"""Two streams: one is the blockwise reference's, the other has its weights replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear
from optc.reference import two_streams as module
from optc.reference.blockwise import BlockwiseReference
from optc.reference.partition import Block
from optc.reference.submodel import Array
from optc.reference.two_streams import Pair, run_two_streams
from tests.support.dense_models import V, dense_model


class Scaled:
    """Multiplies all weights by a factor."""

    def __init__(self, factor: float | None) -> None:
        self.factor = factor
        self.seen: list[str] = []
        self.blocks: list[Pair] = []
        self.hidden: Pair | None = None

    def weights(
        self, linears: Sequence[Linear], values: Mapping[ir.Value, Pair]
    ) -> Mapping[ir.Value, Array]:
        assert all(linear.x in values for linear in linears)
        self.seen += [linear.name for linear in linears]
        if self.factor is None:
            return {}
        return {
            one.initializer: one.weight.read_rows(0, one.weight.rows_shape[0]) * self.factor
            for one in linears
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
    run_two_streams(dense_model(2), tokens, replacer, 1)
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
    run_two_streams(dense_model(2), tokens, replacer, 1)
    assert replacer.hidden is not None
    assert replacer.hidden.changed is replacer.hidden.original
