"""Sub-layers: what is found in model families, and models without some beside zero weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.check import check_structure
from optc.passes.prune.structured.cut import set_weight
from optc.passes.prune.structured.sublayers import (
    ATTENTION,
    MLP,
    SubLayer,
    find_sublayers,
    remove_sublayers,
)
from optc.passes.prune.structured.variants import zero_weight
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run_dense

TOKENS = list(range(20))


def found_in(model: ir.Model, report: PassReport | None = None) -> list[SubLayer]:
    return find_sublayers(model, report or PassReport())


@pytest.mark.parametrize("family", FAMILIES)
def test_each_layer_has_an_attention_and_an_mlp(family: str) -> None:
    shape, report = FAMILIES[family], PassReport()
    found = found_in(dense_model(shape), report)
    # the way from a layer's own embedding into the stream is one more
    own = (["own_out"], [MLP]) if shape.layer_inputs else ([], [])
    writers, kinds = ["o", "down", *own[0]], [ATTENTION, MLP, *own[1]]
    assert [one.kind for one in found] == kinds * shape.layers
    assert [one.block for one in found] == [i for i in range(shape.layers) for _ in kinds]
    assert report.skipped == []
    names = [one.writer.name for one in found]
    mixers = {i: "o" if i in shape.attentions else "mixer_out" for i in range(shape.layers)}
    assert names == [f"{i}.{w}.weight" for i in mixers for w in (mixers[i], *writers[1:])]
    inner = shape.inner * shape.hidden
    assert found[1].weights == (3 if shape.gated else 2) * inner


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_sublayers_gives_what_zero_weights_give(family: str) -> None:
    shape = FAMILIES[family]
    for kind in (ATTENTION, MLP):
        model, zeroed = dense_model(shape), dense_model(shape)
        out = next(one for one in found_in(model) if one.kind == kind)
        remove_sublayers(model, [out])
        check_structure(model)
        zero = next(one for one in found_in(zeroed) if one.kind == kind)
        set_weight(zero.writer.initializer, zero_weight(zero.writer))
        np.testing.assert_allclose(
            run_dense(model, TOKENS), run_dense(zeroed, TOKENS), rtol=1e-4, atol=2e-5
        )
        assert len(found_in(model)) == len(found_in(dense_model(shape))) - 1


def test_several_go_at_once_behind_each_other_too() -> None:
    model = dense_model(FAMILIES["gemma2"])
    found = found_in(model)
    remove_sublayers(model, found[1:4])  # an MLP, and the whole layer behind it
    assert [one.writer.name for one in found_in(model)] == [
        "0.o.weight",
        "2.o.weight",
        "2.down.weight",
    ]
    assert run_dense(model, TOKENS).shape[-1] == FAMILIES["gemma2"].vocab


def test_terms_that_are_added_side_by_side_go_one_by_one() -> None:
    nodes = """
        e = Gather (table, input_ids)
        t = MatMul (e, wa)
        m = MatMul (e, wb)
        both = Add (t, m)
        r = Add (e, both)
        n = RMSNormalization <axis: int = -1> (r, gamma)
        logits = MatMul (n, head)"""
    weights = {name: f32(*s) for name, s in {"wa": (8, 8), "wb": (8, 8), "head": (8, 6)}.items()}
    weights |= {"gamma": f32(8)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,6] logits)"
    model = model_of(signature, nodes, weights | {"table": f32(6, 8)})
    found = found_in(model)
    assert [one.writer.name for one in found] == ["wa", "wb"]
    remove_sublayers(model, found[:1])
    assert nodes_text(model) == expected(
        """
        e = Gather (table, input_ids)
        m = MatMul (e, wb)
        r = Add (e, m)
        n = RMSNormalization <axis = -1> (r, gamma)
        logits = MatMul (n, head)"""
    )


def test_a_bias_behind_a_norm_does_not_vanish() -> None:
    nodes = """
        e = Gather (table, input_ids)
        t = MatMul (e, wa)
        b = Add (t, bias)
        p = RMSNormalization <axis: int = -1> (b, gamma)
        r = Add (e, p)
        logits = MatMul (r, head)"""
    weights = {"wa": f32(8, 8), "head": f32(8, 6), "gamma": f32(8), "bias": f32(8)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,6] logits)"
    report = PassReport()
    assert found_in(model_of(signature, nodes, weights | {"table": f32(6, 8)}), report) == []
    assert "does not vanish with the weight of one linear layer" in report.skipped[0]


def test_a_bias_alone_stays_where_its_sublayer_was() -> None:
    nodes = """
        e = Gather (table, input_ids)
        t = MatMul (e, wa)
        b = Add (t, bias)
        r = Add (e, b)
        logits = MatMul (r, head)"""
    weights = {"wa": f32(8, 8), "head": f32(8, 6), "bias": f32(8), "table": f32(6, 8)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,6] logits)"
    model = model_of(signature, nodes, weights)
    remove_sublayers(model, found_in(model))
    assert nodes_text(model) == expected(
        """
        e = Gather (table, input_ids)
        r.bias = Add (e, bias)
        logits = MatMul (r.bias, head)"""
    )


def test_a_block_that_is_no_sum_over_its_source_is_told() -> None:
    nodes = """
        e = Gather (table, input_ids)
        r = MatMul (e, wa)
        n = RMSNormalization <axis: int = -1> (r, gamma)
        logits = MatMul (n, head)"""
    weights = {"wa": f32(8, 8), "head": f32(8, 6), "gamma": f32(8), "table": f32(6, 8)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,6] logits)"
    report = PassReport()
    assert found_in(model_of(signature, nodes, weights), report) == []
    assert "its block is no sum over what comes into it" in report.skipped[0]
