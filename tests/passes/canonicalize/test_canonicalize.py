"""`canonicalize` as a whole: its contract, and what it says about graphs it does not know."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.import_model import import_model
from optc.ir.forms.decoder import Dense as DenseForm
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.canonicalize import PASSES, Canonicalize
from tests.importer.decoders import build, config_of, error, reference, run, save, tokens
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import expected, f32, nodes_text
from tests.support.models import Dense, dense_model

TOKENS = "(int64[B,S] input_ids, int64[B,S] position_ids)"


def test_passes_are_listed_once_with_names_of_their_own() -> None:
    names = [each.name for each in PASSES]
    assert names[0] == "canonicalize"
    assert len(set(names)) == len(names)


def test_a_layer_in_dense_form(tmp_path: Path) -> None:
    """Qwen3: everything that attention can have but biases."""
    model = build(config_of("Qwen3", head_dim=16))
    imported = import_model(save(model, tmp_path / "qwen3"))
    report = Canonicalize().run(imported.model)
    assert report.details["find-attention: full"] == 1
    assert report.details["find-norms: head norm"] == 2
    assert report.skipped == []
    for index, value in enumerate(v for node in imported.model.graph for v in node.outputs):
        value.name = value.name if value.is_graph_output() else f"t{index}"
    text = nodes_text(imported.model).replace("model.layers.0.", "").replace(".weight", "")
    text = re.sub(r"\bval_\d+", "axes", text)  # the exporter numbers its constants
    norm, rotary = "<axis = -1, epsilon = 1e-06>", "rotary_embedding_dim = 16, interleaved = 0"
    attention = "num_heads = 4, kv_num_heads = 2, scale = 0.25, softcap = 0, window = 0"
    assert text == expected(f"""
        t0 = Cast <to = 1> (position_ids)
        t1 = Unsqueeze (t0, rotary0.last)
        t2 = Mul (t1, rotary0.frequencies)
        t3 = Cos (t2)
        t4 = Sin (t2)
        t5 = Gather <axis = 0> (model.embed_tokens, input_ids)
        t6 = RMSNormalization {norm} (t5, input_layernorm)
        t7 = MatMul (t6, self_attn.q_proj)
        t8 = optc.HeadRMSNorm <num_heads = 4, epsilon = 1e-06> (t7, self_attn.q_norm)
        t9 = MatMul (t6, self_attn.k_proj)
        t10 = optc.HeadRMSNorm <num_heads = 2, epsilon = 1e-06> (t9, self_attn.k_norm)
        t11 = MatMul (t6, self_attn.v_proj)
        t12 = RotaryEmbedding <num_heads = 4, {rotary}> (t8, t3, t4)
        t13 = RotaryEmbedding <num_heads = 2, {rotary}> (t10, t3, t4)
        t14 = optc.Attention <{attention}> (t12, t13, t11)
        t15 = MatMul (t14, self_attn.o_proj)
        t16 = Add (t5, t15)
        t17 = RMSNormalization {norm} (t16, post_attention_layernorm)
        t18 = MatMul (t17, mlp.gate_proj)
        t19 = Sigmoid (t18)
        t20 = Mul (t18, t19)
        t21 = MatMul (t17, mlp.up_proj)
        t22 = Mul (t20, t21)
        t23 = MatMul (t22, mlp.down_proj)
        t24 = Add (t16, t23)
        t25 = RMSNormalization {norm} (t24, model.norm)
        logits = MatMul (t25, lm_head)
        """)
    assert error(run(imported.model, tokens()), reference(model, tokens())) < 2e-5


def test_the_dense_form_is_left_as_it_is() -> None:
    model = dense_model(Dense(qk_norm=True, qkv_bias=True, windows=(4, 0), tied=True))
    before = run(model, tokens() % 61)
    kinds = [(node.domain, node.op_type) for node in model.graph]
    canonicalize = Canonicalize()
    canonicalize.requires(model)
    canonicalize.run(model)
    canonicalize.ensures(model)
    found = [(node.domain, node.op_type) for node in model.graph]
    assert sorted(found) == sorted(kinds)
    np.testing.assert_array_equal(run(model, tokens() % 61), before)


def test_other_inputs_are_refused() -> None:
    model = exported("(float[B,S,8] x) => (float[B,S,8] y)", "y = Neg (x)")
    with pytest.raises(InputError, match=r"inputs x are not .* an exported decoder.*input_ids"):
        Pipeline((Canonicalize(),)).run(model)


def test_leftovers_are_an_internal_error() -> None:
    model = exported(
        f"{TOKENS} => (int64[S,B] y)", "y = Transpose <perm: ints = [1, 0]> (input_ids)"
    )
    with pytest.raises(RuntimeError, match=r"canonicalize left .*\(Transpose\)"):
        Canonicalize().ensures(model)


def decoder(nodes: str, result: str = "B,S,8") -> ir.Model:
    return exported(
        f"{TOKENS} => (float[{result}] y)",
        f"x = Gather <axis: int = 0> (w, input_ids) {nodes}",
        {"w": f32(16, 8), "v": f32(8, 8)},
        {"heads": np.array([0, 0, 2, 4]), "first": np.array([0]), "one": np.array([1])},
    )


SPLIT = "h = Reshape (x, heads) t = Transpose <perm: ints = [0, 2, 1, 3]> (h)"


@pytest.mark.parametrize(
    ("nodes", "result", "message"),
    [
        (
            f"{SPLIT} y = Attention <scale: float = 1.0> (t, t, t)",
            "B,2,S,4",
            r"value \['B', 'S', 2, 4\] with an axis of heads is left; nearest: .*"
            "not an attention pattern I know: it is not causal",
        ),
        ("z = Sigmoid (v) y = MatMul (x, z)", "B,S,8", "product of two computed values"),
        ("y = Softmax <axis: int = -1> (x)", "B,S,8", "not an operator of the dense form"),
        ("y = Concat <axis: int = 1> (x, x)", "B,R,8", "Concat along another axis than the last"),
        ("y = Slice (x, first, one, first)", "R,S,8", "it slices another axis than the last"),
        ("y = Gather <axis: int = 2> (x, first)", "B,S,1", "rows gathered along axis 2"),
    ],
)
def test_what_is_not_recognized_is_named(nodes: str, result: str, message: str) -> None:
    model = decoder(nodes, result)
    with pytest.raises(UnsupportedError, match=message) as caught:
        Canonicalize().run(model)
    assert caught.value.where.endswith(")")
    assert "passes in canonicalize" in caught.value.hint


def test_it_leaves_no_functions_and_says_which_form_it_gave(tmp_path: Path) -> None:
    built = import_model(save(build(config_of("Llama")), tmp_path / "llama")).model
    with pytest.raises(InputError):
        DenseForm.read(built)
    Canonicalize().run(built)
    DenseForm.read(built)
    used = {node.op_identifier() for node in built.graph}
    assert set(built.functions) <= used
