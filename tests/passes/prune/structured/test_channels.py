"""Channels: what is found in model families, and why other inputs have none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.channels import KV_GROUPS, NEURONS, find_channels
from tests.support.families import FAMILIES
from tests.support.ir_text import f32, model_of
from tests.support.models import dense_model

SIGNATURE = "g (float[1,S,8] x) => (float[1,S,6] y)"
HEAD = "y = MatMul (h, head)"
ATTENTION = (
    "a = optc.Attention <num_heads: int = 4, kv_num_heads: int = 2, scale: float = 0.5,"
    " softcap: float = 0.0, window: int = 0> (q, k, v)"
)


#: Reasons for channels that stay: they are shared by layers, or parts of a table.
KEPT = (
    *("rotaryembedding_out_4 has other readers", "Gather, which mixes", "Slice, which mixes"),
    *("CausalConv, which mixes", "LinearAttention, which mixes"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_neurons_and_but_for_wide_norms_kv_heads(family: str) -> None:
    shape, report = FAMILIES[family], PassReport()
    model = dense_model(shape)
    neurons = find_channels(model, NEURONS, report)
    of_groups = PassReport()
    groups = find_channels(model, KV_GROUPS, of_groups)
    assert [one.units for one in neurons] == [shape.inner] * shape.layers
    assert [one.name for one in neurons] == [f"{i}.down.weight" for i in range(shape.layers)]
    if family == "olmo2":
        assert not groups
        assert sum("RMSNormalization, which mixes channels" in s for s in report.skipped) > 1
        return
    if shape.latent:
        assert not groups
        assert sum("HeadConcat, which mixes channels" in s for s in of_groups.skipped) == 2
        return
    alone = shape.attentions[: -2 if shape.shared_kv else None]  # whose keys one attention reads
    assert [one.units for one in groups] == [shape.kv_heads] * len(alone)
    assert [one.name for one in groups] == [f"{i}.o.weight" for i in alone]
    assert [text for text in report.skipped if not any(known in text for known in KEPT)] == []
    others = shape.shared_kv or shape.layer_inputs or len(shape.attentions) < shape.layers
    assert bool(report.skipped) == bool(others)


def test_a_neuron_counts_its_rows_and_columns_and_a_kv_head_those_of_its_query_heads() -> None:
    shape = FAMILIES["llama"]
    model = dense_model(shape)
    (neurons, *_) = find_channels(model, NEURONS, PassReport())
    assert Counter(rows.size for rows in neurons.rows) == {shape.inner: 2}
    assert neurons.weights_each == 3 * shape.hidden
    (groups, *_) = find_channels(model, KV_GROUPS, PassReport())
    per_group = shape.heads // shape.kv_heads * shape.head_dim
    assert groups.weights_each == (2 * per_group + 2 * shape.head_dim) * shape.hidden


#: Nodes before ``h``, which the head reads, and why ``w2`` has no channels that can go.
REFUSED = {
    "t = MatMul (x, w)\nu = Add (t, x)\nh = MatMul (u, w2)": "its input is the model's",
    "t = MatMul (x, w)\ns = Softmax (t)\nh = MatMul (s, w2)": (
        "Softmax, which mixes channels, gives its input"
    ),
    "t = MatMul (x, w)\nm = MatMul (t, w2)\nh = Add (m, t)": "t has other readers",
    "t = MatMul (x, w2)\nh = MatMul (t, w2)": "the weight w2 is used elsewhere too",
    "t = MatMul (x, w)\nu = Mul (t, c)\nv = Mul (u, c)\nh = MatMul (v, w2)": (
        "the constant c is none by channel, or used elsewhere"
    ),
    "t = MatMul (x, w)\nn = MatMul (x, narrow)\nu = Mul (t, n)\nh = MatMul (u, w2)": (
        "Mul of operands of several widths gives its input"
    ),
    "s0, s1 = Split <axis: int = -1> (x, sizes)\nh = MatMul (s0, w4)": (
        "a Split of something else than one linear layer's result gives it"
    ),
}


@pytest.mark.parametrize("nodes", REFUSED)
def test_what_has_no_channels_says_why(nodes: str) -> None:
    shapes = {"w": (8, 8), "w2": (8, 8), "w4": (4, 8), "narrow": (8, 1), "head": (8, 6)}
    weights = {name: f32(*shape) for name, shape in shapes.items()}
    known = weights | {"c": f32(8), "sizes": np.array([4, 4], np.int64)}
    used = {name: array for name, array in known.items() if name in f"{nodes}{HEAD}"}
    report = PassReport()
    model = model_of(SIGNATURE, f"{nodes}\n{HEAD}", used)
    assert find_channels(model, NEURONS, report) == []
    assert any(line.endswith(REFUSED[nodes]) for line in report.skipped), report.skipped


def test_a_gate_on_an_attentions_result_loses_the_same_heads() -> None:
    nodes = f"""
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        g0 = MatMul (x, wg)
        {ATTENTION}
        g = Sigmoid (g0)
        p = Mul (a, g)
        h = MatMul (p, wo)
        {HEAD}"""
    shapes = dict.fromkeys(("wq", "wg", "wo"), (8, 8))
    shapes |= {"wk": (8, 4), "wv": (8, 4), "head": (8, 6)}
    model = model_of(SIGNATURE, nodes, {name: f32(*shape) for name, shape in shapes.items()})
    (found,) = find_channels(model, KV_GROUPS, PassReport())
    assert found.units == 2
    assert [rows.linear.name for rows in found.rows] == ["wq", "wk", "wv", "wg"]
    sizes = {str(value.name): size for value, size in found.values.items()}
    assert sizes == dict.fromkeys(("p", "a", "q", "g", "g0"), 8) | {"k": 4, "v": 4}


def test_heads_of_two_attentions_that_are_added_stay() -> None:
    """Their heads are as many, but two layers would lose them together by chance alone."""
    nodes = f"""
        q = MatMul (x, wq)
        k = MatMul (x, wk)
        v = MatMul (x, wv)
        {ATTENTION}
        q2 = MatMul (x, wq2)
        k2 = MatMul (x, wk2)
        v2 = MatMul (x, wv2)
        {ATTENTION.replace("a =", "a2 =").replace("(q, k, v)", "(q2, k2, v2)")}
        p = Add (a, a2)
        h = MatMul (p, wo)
        {HEAD}"""
    shapes = dict.fromkeys(("wq", "wq2", "wo"), (8, 8)) | {"head": (8, 6)}
    shapes |= dict.fromkeys(("wk", "wv", "wk2", "wv2"), (8, 4))
    model = model_of(SIGNATURE, nodes, {name: f32(*shape) for name, shape in shapes.items()})
    report = PassReport()
    assert find_channels(model, KV_GROUPS, report) == []
    assert report.skipped[0].endswith("several attentions give its input")
