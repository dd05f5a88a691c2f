"""Values that skip layers are carried beside the hidden state, wherever the reference goes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import find_linears
from optc.proof.reference import two_streams
from optc.proof.reference.baseline import Baseline
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.running.rows import join_rows, split_rows, total_width, widest
from optc.proof.reference.two_streams import run_two_streams
from optc.proof.reference.variants import measure
from optc.proof.reference.variants.measure import measure_variants
from tests.proof.reference.test_two_streams import FLOATS, Scaled
from tests.proof.reference.variants.test_measure import changed
from tests.support.families import FAMILIES
from tests.support.models import dense_model
from tests.support.ragged import run_dense

SKIPPING = ("shared keys", "embeddings of layers")
TOKENS = np.random.default_rng(2).integers(0, FAMILIES[SKIPPING[0]].vocab, (5, 9), np.int32)


def whole(model: ir.Model) -> np.ndarray:
    """Logits [W, S, V] of the whole model in ONNX Runtime."""
    return np.stack([run_dense(model, row.tolist()) for row in TOKENS])


def by_blocks(model: ir.Model) -> np.ndarray:
    reference = BlockwiseReference(model, 1)
    hidden = reference.window_states(TOKENS).all()
    tiles = [reference.logits(hidden, tile) for tile in reference.tiles()]
    return np.concatenate(tiles, axis=-1).reshape(*TOKENS.shape, -1)


def scaled(family: str, factor: float) -> ir.Model:
    """The model with the weights of its layers, but not its head's, multiplied."""
    model = dense_model(FAMILIES[family])
    for linear in find_linears(model)[:-1]:
        value = linear.initializer
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(factor))
    return model


@pytest.mark.parametrize("family", SKIPPING)
def test_the_blocks_give_the_whole_models_logits(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.proof.reference.blockwise.BLOCK_ROWS", 18)  # 2 windows at a time
    model = dense_model(FAMILIES[family])
    np.testing.assert_allclose(by_blocks(model), whole(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", SKIPPING)
def test_the_baselines_layers_are_given_them(family: str) -> None:
    baseline = Baseline(dense_model(FAMILIES[family]), 1, whole=False)
    layers = []
    for part in baseline.open_parts(np.arange(6, dtype=np.int32)):
        caches = {n: a for cache in part.caches for n, a in cache.empty().items()}
        masks = {n: a for cache in part.caches for n, a in cache.masks(6, 0).items()}
        (result,) = part.session.run([part.result], {**part.feeds, **part.fixed, **caches, **masks})
        assert np.isfinite(result).all()
        layers.append(len(part.caches))
    assert layers == [1] * FAMILIES[family].layers + [0]


@pytest.mark.parametrize("family", SKIPPING)
def test_two_streams_carry_them_both(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_streams, "BLOCK_ROWS", 18)
    replacer = Scaled(0.9)
    run_two_streams(dense_model(FAMILIES[family]), TOKENS, replacer, FLOATS, 1)
    assert replacer.hidden is not None
    pairs = ((replacer.hidden.original, 1.0), (replacer.hidden.changed, 0.9))
    for found, factor in pairs:
        expected = BlockwiseReference(scaled(family, factor), 1).run(TOKENS)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", SKIPPING)
def test_without_replacements_two_streams_are_one(family: str) -> None:
    replacer = Scaled(None)
    run_two_streams(dense_model(FAMILIES[family]), TOKENS, replacer, FLOATS, 1)
    assert replacer.hidden is not None
    assert replacer.hidden.changed is replacer.hidden.original
    assert all(pair.changed is pair.original for pair in replacer.inputs)


@pytest.mark.parametrize("family", SKIPPING)
def test_variants_carry_them(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BLOCK_ROWS", 18)
    monkeypatch.setattr(measure, "_FARTHEST", 1)
    model = dense_model(FAMILIES[family])
    linears = {linear.name: linear for linear in find_linears(model)}
    groups = [["0.v.weight"], ["0.down.weight", "1.q.weight"], [*linears]]
    asked = [{linears[n].initializer: changed(linears[n], 0.1, 7) for n in g} for g in groups]
    before = _log_probabilities(whole(model))
    for variant, found in zip(asked, measure_variants(model, TOKENS, asked, 1), strict=True):
        other = dense_model(FAMILIES[family])
        for value, weight in variant.items():
            name = str(value.name)
            other.graph.initializers[name].const_value = weight.transpose()
            if name == "head.weight" and FAMILIES[family].tied:
                other.graph.initializers["embed.weight"].const_value = weight
        after = _log_probabilities(whole(other))
        expected = (np.exp(before) * (before - after)).sum(axis=-1).mean()
        assert found == pytest.approx(expected, rel=1e-3)


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    z = logits.astype(np.float64)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def test_rows_are_joined_and_split_again() -> None:
    model = dense_model(FAMILIES["embeddings of layers"])
    (*_, last) = BlockwiseReference(model, 1).parts.blocks
    arrays = {v: np.random.rand(2, 3, total_width([v])) for v in last.given}
    rows = join_rows(arrays, last.given)
    assert rows.shape[-1] == total_width(last.given) == widest([last])
    for value, array in split_rows(rows, last.given).items():
        np.testing.assert_array_equal(array, arrays[value])
    alone = arrays[last.source]
    assert split_rows(alone, [last.source])[last.source] is alone
    assert join_rows(arrays, [last.source]) is alone
    with pytest.raises(ValueError, match="width of a value between blocks is not known"):
        total_width([ir.Value(name="x")])
