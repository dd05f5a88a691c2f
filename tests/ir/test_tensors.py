"""The tensors of a dense form: kinds, ties, and other values in their place."""

from __future__ import annotations

import numpy as np

from optc.ir.tensors import model_tensors
from tests.support.models import Dense, dense_model


def test_kinds_and_ties() -> None:
    tied = {one.name: one for one in model_tensors(dense_model(Dense(tied=True, qkv_bias=True)))}
    assert tied["embed.weight"].kind == "linear"  # the head reads it
    assert [v.name for v in tied["embed.weight"].initializers] == ["embed.weight", "head.weight"]
    assert (tied["0.q.weight"].kind, tied["0.q.weight"].shape) == ("linear", (32, 32))
    assert tied["0.q.bias"].kind == "vector"
    assert tied["final_norm.weight"].kind == "vector"
    apart = {one.name: one.kind for one in model_tensors(dense_model(Dense()))}
    assert (apart["embed.weight"], apart["head.weight"]) == ("embedding", "linear")
    assert not {"cap", "inv_freq"} & set(apart)


def test_head_norms_and_layer_norms_are_vectors() -> None:
    names = {one.name for one in model_tensors(dense_model(Dense(qk_norm=True, layer_norms=True)))}
    assert {"0.q_norm.weight", "0.mlp_norm.weight", "0.mlp_norm.bias"} <= names


def test_other_values_are_seen_as_the_graph_saw_them() -> None:
    model = dense_model(Dense(tied=True))
    shapes = {v.name: tuple(v.const_value.shape) for v in model.graph.initializers.values()}
    for one in model_tensors(model):
        rows = np.arange(np.prod(one.shape), dtype=np.float32).reshape(one.shape)
        one.replace(lambda start, stop, rows=rows: rows[start:stop])
    after = {v.name: tuple(v.const_value.shape) for v in model.graph.initializers.values()}
    assert after == shapes
    square = model.graph.initializers["0.q.weight"].const_value.numpy()  # [K, N] of 32 by 32
    assert square[1, 0] == 1.0
    head = model.graph.initializers["head.weight"].const_value.numpy()
    assert head[0, 1] == 32.0
    first = model_tensors(model)[0]
    assert first.name == "embed.weight"
    assert len(first.initializers) == 2
