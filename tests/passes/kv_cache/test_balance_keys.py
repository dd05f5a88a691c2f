"""`balance-keys`: the same logits, from keys that are centred and of even size."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.functions import DOMAIN, is_op
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassContext
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.weights import Given, LazyWeight
from optc.passes.kv_cache.balance_keys import BalanceKeys
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.numerics.affine import quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.folding.scaled_pairs import scalable
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate_kv import RotateKV
from tests.passes.checked import checked_run
from tests.support.ir_text import Array
from tests.support.letters import letters_folder
from tests.support.models import Dense, dense_model
from tests.support.ragged import RaggedDriver, run, run_dense

SHAPES = {
    "plain": Dense(),
    "part-rotary-biases": Dense(rotary_dim=4, qkv_bias=True, windows=(0, 5)),
    "norms": Dense(qk_norm=True),
    "softcap": Dense(softcap=2.0),
    "sinks": Dense(sinks=True),
    "alibi": Dense(alibi=True, rotary_dim=0),
    "fused": Dense(fused=True),
    "latents": Dense(latent=16, heads=4, kv_heads=4, head_dim=12, rotary_dim=4),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of a token a letter, and a text."""
    return letters_folder(tmp_path, 140)


def balance(folder: Path) -> BalanceKeys:
    text = str(folder / "text.txt")
    return BalanceKeys(text=text, folder=str(folder), windows=3, window_tokens=16)


def attentions(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]


def scored(model: ir.Model, tokens: Array) -> list[tuple[Array, Array]]:
    """Queries and keys [W, S, n * d] of each attention."""
    values = [node.inputs[i] for node in attentions(model) for i in range(2)]
    shown = model.clone()
    by_name = {v.name: v for node in shown.graph for v in node.outputs}
    for value in values:
        assert value is not None
        shown.graph.outputs.append(by_name[value.name])
    positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape).copy()
    arrays = run(shown, {"input_ids": tokens.astype(np.int64), "position_ids": positions})[1:]
    return list(zip(arrays[::2], arrays[1::2], strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_logits_stay(name: str, folder: Path) -> None:
    model, tokens = dense_model(SHAPES[name]), list(range(1, 25))
    before = run_dense(model, tokens)
    report = checked_run(balance(folder), model)
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=2e-4, atol=2e-5)
    assert report.details.get("centred", 0) == (0 if name in ("softcap", "sinks") else 2)
    assert report.details.get("pairs scaled", 0) == 2


def test_keys_lose_their_mean_and_pairs_are_as_large_as_their_queries(folder: Path) -> None:
    shape = replace(SHAPES["plain"], qkv_bias=True)
    model, one = dense_model(shape), balance(folder)
    checked_run(one, model)
    for q, k in scored(model, one.tokens(model)):
        keys = k.astype(np.float64).reshape(-1, shape.kv_heads, shape.head_dim)
        assert np.abs(keys.mean(0)).max() < 1e-5
        queries = q.astype(np.float64).reshape(len(keys), shape.kv_heads, -1, shape.head_dim)
        sizes = [np.square(keys).mean(0), np.square(queries).mean((0, 2))]
        k_pair, q_pair = (a.reshape(shape.kv_heads, 2, -1).sum(1) for a in sizes)
        ratio = k_pair / q_pair  # the same for all pairs of a head: keys as large as queries
        np.testing.assert_allclose(ratio, ratio[:, :1].repeat(ratio.shape[1], 1), rtol=1e-3)


@pytest.mark.parametrize("name", ["plain", "norms"])
def test_what_is_rotated_afterwards_keeps_its_mean_and_its_balance(name: str, folder: Path) -> None:
    shape = replace(SHAPES[name], head_dim=16, rotary_dim=16, windows=(0,))
    model, tokens = dense_model(shape), list(range(1, 25))
    before = run_dense(model, tokens)
    later = RotateKV(), QuantizeWeights()
    report = checked_run(balance(folder), model, *later)
    assert report.details == {"pairs scaled": 1}
    ((q, k),) = scored(model, balance(folder).tokens(model))
    sizes = [np.square(a.reshape(-1, n, 2, 8)).mean((0, 1, 2)) for a, n in ((q, 4), (k, 2))]
    ratio = sizes[1] / sizes[0]
    if name == "norms":  # whose scale all heads share: even over all of them
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)
    assert "pairs of norms scaled" not in checked_run(later[0], model, later[1]).details
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=2e-4, atol=5e-5)


def test_weights_of_a_checkpoint_stay_on_their_grid(folder: Path) -> None:
    model = dense_model(SHAPES["plain"])
    for linear in find_linears(model):
        tile = quantize_rows(linear.weight.read_rows(0, 1 << 20), Scheme(4, 0, True), "w")
        rows = QuantizedRows(partial(_part, tile), *linear.weight.rows_shape, 4, 0, True, "w")
        given = LazyWeight(
            rows.floats, linear.weight.rows_shape, ir.DataType.FLOAT, "w", given=Given("Q4", rows)
        )
        linear.initializer.const_value = given.transpose() if linear.weight.transposed else given
    tokens = list(range(1, 25))
    before = run_dense(model, tokens)
    report = balance(folder).run(model, PassContext(later=(RotateKV(block=16),)))
    assert report.details["pairs scaled"] == 2
    for linear in find_linears(model):
        grid = linear.weight.given
        assert grid is not None
        assert isinstance(grid.rows, QuantizedRows)
        np.testing.assert_array_equal(grid.rows.floats(0, 8), linear.weight.read_rows(0, 8))
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=2e-4, atol=2e-5)


def _part(tile: QuantizedTile, start: int, stop: int) -> QuantizedTile:
    return QuantizedTile(*(None if part is None else part[start:stop] for part in tile))


def test_int4_pools_lose_less(folder: Path) -> None:
    """Keys with a large mean, as trained models have them."""
    shape = Dense(head_dim=32, rotary_dim=8, qkv_bias=True, windows=(0,))
    tokens, errors = list(range(1, 25)), []
    for balanced in (False, True):
        model = dense_model(shape)
        bias = next(v for n, v in model.graph.initializers.items() if "k" in n and "bias" in n)
        assert bias.const_value is not None
        bias.const_value = ir.tensor(bias.const_value.numpy() + np.float32(9), name=bias.name)
        exact = run_dense(model, tokens)
        if balanced:
            checked_run(balance(folder), model)
        checked_run(KVCache(dtype="int4"), model)
        errors.append(np.square(RaggedDriver(model).step({0: tokens}) - exact).mean())
    assert errors[1] < 0.5 * errors[0]


def test_without_a_folder_it_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="nothing says whose tokenizer"):
        BalanceKeys().requires(dense_model(Dense()))


def test_keys_that_share_channels_are_scaled_behind_these(folder: Path) -> None:
    """The channels of the rotary embedding, which all heads share, keep their size."""
    model, one = dense_model(SHAPES["latents"]), balance(folder)
    before = [k for _, k in scored(model, one.tokens(model))]
    checked_run(one, model, RotateKV())  # which keeps the mean
    for was, (_, now) in zip(before, scored(model, one.tokens(model)), strict=True):
        was, now = (each.reshape(-1, 4, 12) for each in (was, now))
        np.testing.assert_allclose(now[..., :4], was[..., :4], rtol=1e-5, atol=1e-6)
        assert not np.allclose(now[..., 4:], was[..., 4:], rtol=1e-2)


def test_joined_heads_that_share_nothing_are_left_alone() -> None:
    model = dense_model(SHAPES["latents"])
    for node in [one for one in model.graph if is_op(one, "HeadConcat", domain=DOMAIN)]:
        node.attributes["shared"] = ir.AttrInt64("shared", 0)
    assert [scalable(node) for node in attentions(model)] == 2 * [
        "heads are joined of two projections"
    ]
