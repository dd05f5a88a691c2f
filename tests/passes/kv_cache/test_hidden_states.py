"""`hidden-states`: the states of all rows against the dense form, and the graph around them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms import decoder
from optc.ir.forms.ragged import RaggedStep
from optc.ir.linear import head_of
from optc.passes.kv_cache.hidden_states import HiddenStates
from optc.passes.kv_cache.kv_cache import KVCache
from tests.support.families import model_after
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run

SHAPE = Dense(hidden=32, vocab=61, tied=True, logit_softcap=5.0)
PIPELINE = "fuse-qkv,fuse-gate-up,kv-cache,hidden-states,fuse-residual-norm,fuse-rotary"
PLAIN = PIPELINE.replace(",hidden-states", "")
WANTED = PIPELINE.replace("hidden-states", "hidden-states{rows=logits}")
TEXTS = {0: [1, 2, 3, 9], 1: [4], 2: [8, 8, 1]}


@pytest.mark.parametrize("shape", [SHAPE, Dense(vocab=61, layer_norms=True, gated=False)])
@pytest.mark.parametrize("quantized", [False, True])
def test_states_of_all_rows_and_the_logits_of_before(shape: Dense, quantized: bool) -> None:
    more = ",quantize-weights,fuse-norm-quantize" if quantized else ""
    driver = RaggedDriver(model_after(PIPELINE + more, shape), extra=("hidden",))
    plain = RaggedDriver(model_after(PLAIN + more, shape))
    wanted = [3, 4, 6]
    np.testing.assert_allclose(
        driver.step(TEXTS, wanted), plain.step(TEXTS, wanted), atol=1e-4, rtol=1e-4
    )
    dense = dense_model(shape)
    head = head_of(dense)
    assert head is not None
    dense.graph.outputs[0] = head.x
    want = []
    for text in TEXTS.values():
        positions = np.arange(len(text), dtype=np.int64)[None]
        feeds = {"input_ids": np.array([text], np.int64), "position_ids": positions}
        want.append(run(dense, feeds)[0][0])
    tolerance = 0.1 if quantized else 2e-5
    np.testing.assert_allclose(driver.more_results[0], np.concatenate(want), atol=tolerance)
    some = RaggedDriver(model_after(WANTED + more, shape), extra=("hidden",))
    some.step(TEXTS, wanted)
    np.testing.assert_allclose(some.more_results[0], np.concatenate(want)[wanted], atol=tolerance)


def test_text() -> None:
    nodes = """
        h = Gather (table, input_ids)
        o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 0> (h, h, h)
        s = Add (h, o)
        n = RMSNormalization <axis: int = 2> (s, scale)
        l = MatMul (n, head)
        logits = Tanh (l)"""
    weights = {"table": f32(10, 8), "scale": f32(8), "head": f32(8, 10)}
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"
    model = model_of(signature, nodes, weights)
    decoder.Dense().attach(model)
    KVCache().run(model)
    narrow = model.clone()
    paged, *tail = nodes_text(model).splitlines()[1:]
    assert "\n".join(tail) == expected(
        """
        h.wanted = Gather <axis = 0> (h, logit_rows)
        o.wanted = Gather <axis = 0> (o, logit_rows)
        s = Add (h.wanted, o.wanted)
        n = RMSNormalization <axis = -1> (s, scale)
        l = MatMul (n, head)
        logits = Tanh (l)
        """
    )
    report = HiddenStates().run(model)
    assert report.details == {"gather": 2, "output": 1}
    assert report.facts == {"width": 8}
    same, *tail = nodes_text(model).splitlines()[1:]
    assert same == paged
    assert "\n".join(tail) == expected(
        """
        s = Add (h, o)
        hidden = RMSNormalization <axis = -1> (s, scale)
        hidden.wanted = Gather <axis = 0> (hidden, logit_rows)
        l = MatMul (hidden.wanted, head)
        logits = Tanh (l)
        """
    )
    form = RaggedStep.of(model)
    assert form.hidden == "all"
    assert not form.features
    rows = {str(node.outputs[0].name): str(node.outputs[0].shape) for node in model.graph}
    assert rows["hidden"] == "[T,8]"
    assert rows["hidden.wanted"] == "[R,8]"
    assert rows["logits"] == "[R,10]"

    before = nodes_text(narrow).replace("n = ", "hidden = ").replace("(n, head)", "(hidden, head)")
    report = HiddenStates(rows="logits").run(narrow)
    assert (report.details, report.facts) == ({"output": 1}, {"width": 8})
    assert RaggedStep.of(narrow).hidden == "logits"
    assert nodes_text(narrow) == before
    assert str(narrow.graph.outputs[-1].shape) == "[R,8]"


def test_rows_that_there_are_not_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        pipeline_of("hidden-states{rows=last}")
    assert str(caught.value) == (
        "pass hidden-states: rows=last is not possible (one of all, logits)"
    )


def test_states_are_exposed_once() -> None:
    model = model_after("fuse-qkv,kv-cache,hidden-states", SHAPE)
    with pytest.raises(InputError) as caught:
        pipeline_of("hidden-states").run(model)
    assert str(caught.value) == (
        "pass hidden-states: the model gives hidden states already "
        "(put it before medusa-heads, and only once)"
    )


def headless() -> ir.Model:
    """A model whose logits come from a weight that is computed."""
    model = model_after("kv-cache", SHAPE)
    head = head_of(model)
    assert head is not None
    identity = ir.Node("", "Identity", [head.initializer], name="hides")
    identity.outputs[0].name, identity.outputs[0].type = "hidden_weight", head.initializer.type
    model.graph.insert_before(head.matmul, [identity])
    head.matmul.replace_input_with(1, identity.outputs[0])
    return model


def test_logits_of_no_linear_layer_are_refused() -> None:
    with pytest.raises(InputError, match="the logits come from no linear layer"):
        pipeline_of("hidden-states").run(headless())
