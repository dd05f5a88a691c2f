"""`rotate-kv`: scores and results stay, who reads what rotated, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears, mark_pruned
from optc.ir.pipeline.base import PassContext
from optc.passes.kv_cache.latent_kv import LatentKV
from optc.passes.numerics.hadamard import hadamard
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate_activations import RotateActivations
from optc.passes.quantize.rotate.rotate_kv import RotateKV
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.ragged import run, run_dense

LATER = (QuantizeWeights(),)
KEPT = FAMILIES["kept_latents"]
SIGNATURE = "g (float[1,S,32] x) => (float[1,S,32] y)"
OPTIONS = "num_heads: int = 2, kv_num_heads: int = 1, scale: float = 0.25, softcap: float = 0.0"
NODES = f"""
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v0 = MatMul (x, wv)
    v = Add (v0, bias)
    a = optc.Attention <{OPTIONS}, window: int = 0> (q, k, v)
    o = MatMul (a, wo)
    y = MatMul (o, head)"""


def model() -> ir.Model:
    shapes = {"wq": (32, 32), "wk": (32, 16), "wv": (32, 16), "bias": (16,), "wo": (32, 32)}
    shapes["head"] = (32, 32)
    weights = {name: f32(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    built = model_of(SIGNATURE, NODES, weights)
    for value, size in zip(built.graph[4].inputs, (32, 16, 16), strict=True):
        assert value is not None
        value.shape = ir.Shape([1, "S", size])
    return built


def test_before_and_after() -> None:
    built = model()
    x = f32(1, 7, 32)
    before, values = run(built, {"x": x})[0], find_linears(built)[2].weight.read_rows(0, 16)
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details == {"values": 1, "keys in blocks of 16": 1}
    stated = "num_heads = 2, kv_num_heads = 1, scale = 0.25, softcap = 0, window = 0"
    assert nodes_text(built) == expected(
        f"""
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        v0 = MatMul (x, wv)
        v = Add (v0, bias)
        q.rotated = optc.BlockHadamard <block = 16, width = 32> (q)
        k.rotated = optc.BlockHadamard <block = 16, width = 16> (k)
        a = optc.Attention <{stated}> (q.rotated, k.rotated, v)
        o = MatMul (a, wo)
        y = MatMul (o, head)"""
    )
    np.testing.assert_allclose(run(built, {"x": x})[0], before, rtol=1e-4, atol=1e-4)
    turned = find_linears(built)[2].weight.read_rows(0, 16)
    matrix = hadamard(16)
    assert matrix is not None
    np.testing.assert_allclose(turned, matrix.T / 4 @ values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_function_stays(family: str) -> None:
    built, tokens = dense_model(replace(FAMILIES[family], head_dim=16)), list(range(20))
    before = run_dense(built, tokens)
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details["keys in blocks of 16"] == len(FAMILIES[family].attentions)
    shared = 2 if FAMILIES[family].shared_kv else 0  # several attentions read them
    assert report.details["values"] == len(FAMILIES[family].attentions) - shared
    np.testing.assert_allclose(run_dense(built, tokens), before, rtol=1e-4, atol=5e-5)
    RotateActivations().run(built, PassContext(later=tuple(LATER)))
    np.testing.assert_allclose(run_dense(built, tokens), before, rtol=1e-4, atol=5e-5)


def test_latents_are_rotated_and_read_so() -> None:
    built, tokens = dense_model(replace(KEPT, latent=16, rotary_dim=16, head_dim=32)), [3, 1, 4] * 5
    LatentKV("latents").run(built)
    before, later = run_dense(built, tokens), PassContext(later=tuple(LATER))
    report = RotateKV().run(built, later)
    layers = len(KEPT.attentions)
    assert report.details == {"latents in blocks of 16": layers, "keys in blocks of 16": layers}
    np.testing.assert_allclose(run_dense(built, tokens), before, rtol=1e-4, atol=5e-5)
    skipped = RotateActivations().run(built, later).skipped
    assert sum("its values come rotated" in reason for reason in skipped) == layers
    np.testing.assert_allclose(run_dense(built, tokens), before, rtol=1e-4, atol=5e-5)


def test_latents_that_something_else_reads_stay() -> None:
    built = dense_model(replace(KEPT, latent=16, rotary_dim=16, head_dim=32))
    LatentKV("latents").run(built)
    for node in [one for one in built.graph if one.op_type == "Attention"]:
        other = ir.Node("", "Relu", [node.outputs[0]], name="another")
        built.graph.insert_after(node, [other])
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details == {"keys in blocks of 16": len(KEPT.attentions)}


def test_what_reads_rotated_values_is_not_rotated_again() -> None:
    built = model()
    RotateKV().run(built, PassContext(later=tuple(LATER)))
    report = RotateActivations().run(built, PassContext(later=tuple(LATER)))
    assert report.details == {"blocks of 16": 2}
    assert "its values come rotated" in report.skipped[0]


def test_values_of_pruned_weights_stay() -> None:
    built = model()
    before = nodes_text(built)
    mark_pruned(built.graph.initializers["wo"])
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details == {"keys in blocks of 16": 1}
    assert "weights that were pruned would be zero no longer" in report.skipped[0]
    assert nodes_text(built) != before


def test_heads_that_no_block_divides_stay() -> None:
    built = model()
    for node, size in zip(built.graph, (24, 12), strict=False):
        node.outputs[0].shape = ir.Shape([1, "S", size])
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details == {"values": 1}
    assert "no block divides heads of 12 channels" in report.skipped[-1]


def test_no_blocks_are_nothing() -> None:
    built = model()
    before = nodes_text(built)
    assert RotateKV(block=0).run(built).details == {}
    assert nodes_text(built) == before
    with pytest.raises(InputError, match="block=128 is not possible"):
        RotateKV(block=128)
    with pytest.raises(InputError, match="no quantize-weights comes after it"):
        RotateKV().run(built)


def test_norms_of_queries_and_keys_are_balanced() -> None:
    """Large channels of keys go to the queries, so that their rotation spreads no outliers."""
    built, tokens = dense_model(Dense(qk_norm=True, head_dim=16, rotary_dim=16)), list(range(20))
    scales = {
        n: v
        for n, v in built.graph.initializers.items()
        if n.endswith(("q_norm.weight", "k_norm.weight"))
    }
    for name, value in scales.items():
        assert value.const_value is not None
        array = value.const_value.numpy().copy()
        array[3] = 30.0 if ".k_norm" in name else 0.5
        value.const_value = ir.tensor(array, name=name)
    before = run_dense(built, tokens)
    report = RotateKV().run(built, PassContext(later=tuple(LATER)))
    assert report.details["pairs of norms scaled"] == 2
    np.testing.assert_allclose(run_dense(built, tokens), before, rtol=1e-4, atol=5e-5)
    for layer in range(2):
        q, k = (
            np.square(scales[f"{layer}.{n}_norm.weight"].const_value.numpy()).reshape(2, 8).sum(0)
            for n in "qk"
        )
        np.testing.assert_allclose(k / q, k[0] / q[0], rtol=1e-4)
