"""`fuse-qkv`: three projections become one."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.sources import Source, sources_of
from optc.passes.fuse.qkv import FuseQKV
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[1,S,8] x, float[1,S,1] c, float[1,S,1] s) => (float[1,S,8] y)"
OPTIONS = "num_heads: int = 4, kv_num_heads: int = 2, scale: float = 0.5, softcap: float = 0.0,"
ATTENTION = f"y = optc.Attention <{OPTIONS} window: int = 0>"


def weights() -> dict[str, Array]:
    return {"wq": f32(8, 8), "wk": f32(8, 4), "wv": f32(8, 4, seed=1), "bq": f32(8)}


def feeds() -> dict[str, Array]:
    return {"x": f32(1, 5, 8), "c": np.cos(f32(1, 5, 1)), "s": np.sin(f32(1, 5, 1))}


def test_three_matmuls_become_one_through_norm_and_rotary() -> None:
    nodes = f"""
        q0 = MatMul (x, wq)
        q1 = Add (q0, bq)
        k0 = MatMul (x, wk)
        v = MatMul (x, wv)
        q2 = optc.HeadRMSNorm <num_heads: int = 4, epsilon: float = 0.5> (q1, scale)
        q = RotaryEmbedding <num_heads: int = 4, rotary_embedding_dim: int = 2> (q2, c, s)
        k = RotaryEmbedding <num_heads: int = 2, rotary_embedding_dim: int = 2> (k0, c, s)
        {ATTENTION} (q, k, v)"""
    model = model_of(SIGNATURE, nodes, {**weights(), "scale": f32(2)})
    before = run(model, feeds())
    report = FuseQKV().run(model)
    assert report.details == {"three matmuls in one": 1}
    assert nodes_text(model) == expected(
        """
        wq+wk+wv.matmul = MatMul (x, wq+wk+wv)
        wq+wk+wv.add = Add (wq+wk+wv.matmul, wq+wk+wv.bias)
        q1, k0, v = Split <axis = -1> (wq+wk+wv.add, wq+wk+wv.add.sizes)
        q2 = optc.HeadRMSNorm <num_heads = 4, epsilon = 0.5> (q1, scale)
        q = RotaryEmbedding <num_heads = 4, rotary_embedding_dim = 2> (q2, c, s)
        k = RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 2> (k0, c, s)
        y = optc.Attention <num_heads = 4, kv_num_heads = 2, scale = 0.5, softcap = 0, \
window = 0> (q, k, v)"""
    )
    np.testing.assert_allclose(run(model, feeds())[0], before[0], rtol=1e-5, atol=1e-6)
    merged = model.graph.initializers["wq+wk+wv"]
    assert Source("wk", 8, 12) in sources_of(merged, 16)
    assert not {"wq", "wk", "wv", "bq"} & set(model.graph.initializers)


def test_one_split_is_done_already() -> None:
    nodes = f"""
        t = MatMul (x, w)
        q, k, v = Split <axis: int = -1> (t, sizes)
        {ATTENTION} (q, k, v)"""
    model = model_of(SIGNATURE, nodes, {"w": f32(8, 16), "sizes": np.array([8, 4, 4])})
    before = nodes_text(model)
    assert FuseQKV().run(model).details == {"fused already": 1}
    assert nodes_text(model) == before


@pytest.mark.parametrize("last", [16, 2**62])
def test_slices_of_one_matmul_become_a_split(last: int) -> None:
    nodes = f"""
        t = MatMul (x, w)
        q = Slice (t, a, b, two, one)
        k = Slice (t, b, e, two, one)
        v = Slice (t, e, z, two, one)
        {ATTENTION} (q, k, v)"""
    bounds = {"a": 0, "b": 8, "e": 12, "z": last, "two": 2, "one": 1}
    model = model_of(
        SIGNATURE, nodes, {"w": f32(8, 16), **{k: np.array([v]) for k, v in bounds.items()}}
    )
    before = run(model, feeds())
    assert FuseQKV().run(model).details == {"three slices of one matmul": 1}
    lines = nodes_text(model).splitlines()
    assert lines[:2] == ["t = MatMul (x, w)", "q, k, v = Split <axis = -1> (t, t.sizes)"]
    np.testing.assert_array_equal(run(model, feeds())[0], before[0])


def test_near_misses_are_told() -> None:
    different = f"""
        h = Tanh (x)
        q = MatMul (x, wq)
        k = MatMul (h, wk)
        v = MatMul (x, wv)
        {ATTENTION} (q, k, v)"""
    computed = f"""
        q = MatMul (x, wq)
        k = Add (c, s)
        v = MatMul (x, wv)
        {ATTENTION} (q, k, v)"""
    shared = f"""
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        {ATTENTION} (q, k, k)"""
    for nodes, reason in (
        (different, "q, k and v have different operands"),
        (computed, "q, k and v are not results of linear layers"),
        (shared, "q, k and v share a linear layer without a Split of all three"),
    ):
        model = model_of(SIGNATURE, nodes, weights())
        before = nodes_text(model)
        report = FuseQKV().run(model)
        assert (report.count, report.skipped) == (0, [f"Attention: {reason}"])
        assert nodes_text(model) == before


def test_names_of_values_stay_unique() -> None:
    nodes = f"q = MatMul (x, wq)\nk = MatMul (x, wk)\nv = MatMul (x, wv)\n{ATTENTION} (q, k, v)"
    model = model_of(SIGNATURE, nodes, weights())
    FuseQKV().run(model)
    names = [value.name for node in model.graph for value in node.outputs]
    assert len(names) == len(set(names))
