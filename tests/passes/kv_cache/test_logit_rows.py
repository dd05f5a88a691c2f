"""Only the wanted rows reach what the logits alone need."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.kv_cache.logit_rows import gather_logit_rows
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[T,8] x, int64[R] rows) => (float[T,10] logits)"
WEIGHTS = {"w": f32(8, 8), "head": f32(8, 10), "scale": f32(8)}


def gathered(nodes: str, signature: str = SIGNATURE) -> ir.Model:
    model = model_of(signature, nodes, WEIGHTS)
    gather_logit_rows(model.graph, model.graph.inputs[1])
    return model


def test_each_operand_is_gathered_once_as_early_as_its_use_allows() -> None:
    nodes = """
        h = Tanh (x)
        m = MatMul (h, w)
        a = Add (m, h)
        b = RMSNormalization (a, scale)
        logits = MatMul (b, head)"""
    signature = SIGNATURE.replace(") =>", ", float[T,8] z) =>").replace(
        "logits)", "logits, float[T,8] h)"
    )
    model = gathered(nodes, signature)
    assert nodes_text(model) == expected(
        """
        h = Tanh (x)
        h.wanted = Gather <axis = 0> (h, rows)
        m = MatMul (h.wanted, w)
        a = Add (m, h.wanted)
        b = RMSNormalization (a, scale)
        logits = MatMul (b, head)"""
    )
    assert list(model.graph.outputs[0].shape or ()) == ["R", 10]


def test_the_wanted_rows_are_those_of_the_whole() -> None:
    nodes = "m = MatMul (x, w)\na = Add (m, x)\nlogits = MatMul (a, head)"
    inputs = {"x": f32(5, 8), "rows": np.array([4, 1])}
    whole = run(model_of(SIGNATURE, nodes, WEIGHTS), inputs)[0]
    np.testing.assert_allclose(run(gathered(nodes), inputs)[0], whole[[4, 1]], rtol=1e-5, atol=1e-6)


def test_what_another_output_needs_keeps_all_rows() -> None:
    nodes = "m = MatMul (x, w)\nk = Tanh (m)\nlogits = MatMul (m, head)"
    signature = SIGNATURE.replace("logits)", "logits, float[T,8] k)")
    assert nodes_text(gathered(nodes, signature)) == expected(
        """
        m = MatMul (x, w)
        k = Tanh (m)
        m.wanted = Gather <axis = 0> (m, rows)
        logits = MatMul (m.wanted, head)"""
    )


def test_logits_that_nothing_computes_are_refused() -> None:
    model = model_of(SIGNATURE, "logits = Identity (head)", WEIGHTS)
    with pytest.raises(ValueError, match="not computed from hidden states"):
        gather_logit_rows(model.graph, model.graph.inputs[1])


def test_tokens_are_looked_up_before_rows_are_gathered() -> None:
    signature = "g (int64[T] tokens, int64[R] rows) => (float[R,10] logits)"
    model = model_of(
        signature,
        "x = Gather <axis: int = 0> (w, tokens) a = Tanh (x) logits = MatMul (a, head)",
        WEIGHTS,
    )
    gather_logit_rows(model.graph, model.graph.inputs[1])
    assert nodes_text(model) == expected(
        """
        x = Gather <axis = 0> (w, tokens)
        x.wanted = Gather <axis = 0> (x, rows)
        a = Tanh (x.wanted)
        logits = MatMul (a, head)"""
    )
