from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.interface import describe
from optc.ir.forms.packed import PackedRows
from optc.ir.functions import is_op
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.canonicalize.encoders.pack_rows import PackRows
from optc.passes.fuse.gate_up import FuseGateUp
from optc.passes.fuse.layer_norm import FuseLayerNorm
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.fuse.rotary import FuseRotary
from optc.passes.general.simplify import Simplify
from tests.importer.tensors.encoders import sentence_transformer
from tests.passes.canonicalize.encoders.models import (
    FAMILIES,
    folder_of,
    import_encoder,
    imported,
    largest_error,
    padded,
    run_packed,
    unpadded,
)

FUSED = Pipeline(
    (Simplify(), PackRows(), FuseQKV(), FuseGateUp(), FuseRotary(), FuseLayerNorm()),
    optional=frozenset({"fuse-gate-up"}),
)


#: RoBERTa with a head for words has all of it; other families are apart in more.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "roberta" else [])
        for name in FAMILIES
    ],
)
def test_rows_are_the_models_own(name: str, tmp_path: Path) -> None:
    found = imported(name, tmp_path)
    assert found.reference is not None
    given = padded(found, pad=1 if name.startswith("roberta") else 0)
    wanted = unpadded(dict(found.reference(given)), given)
    FUSED.run(found.model)
    assert largest_error(run_packed(found.model, given), wanted) < 1e-5


def test_windows_and_rotary_tables_of_each_layer_are_found(tmp_path: Path) -> None:
    found = imported("modernbert", tmp_path)
    FUSED.run(found.model)
    nodes = [n for n in found.model.graph if is_op(n, "RotaryPackedAttention", domain="optc")]
    assert sorted(n.attributes["window"].value for n in nodes) == [0, 5]
    assert all(n.attributes["rotary_embedding_dim"].value == 16 for n in nodes)


@pytest.mark.parametrize(
    ("modes", "normalize"),
    [
        (("mean_tokens",), True),
        (("cls_token", "mean_tokens"), True),
        (("max_tokens", "lasttoken"), False),
        pytest.param(("cls_token",), False, marks=pytest.mark.long),
        pytest.param(("max_tokens",), True, marks=pytest.mark.long),
        pytest.param(("lasttoken",), True, marks=pytest.mark.long),
    ],
)
def test_poolings(modes: tuple[str, ...], normalize: bool, tmp_path: Path) -> None:
    found = import_encoder(sentence_transformer(tmp_path / "st", *modes, normalize=normalize))
    assert found.reference is not None
    given = padded(found)
    given["input_ids"] %= 30
    wanted = dict(found.reference(given))
    Pipeline((Simplify(), PackRows())).run(found.model)
    pools = [n for n in found.model.graph if is_op(n, "PoolRows", domain="optc")]
    assert len(pools) == len(modes)
    assert largest_error(run_packed(found.model, given), wanted) < 1e-5


def test_bfloat16_rounds_keys_values_queries_and_weights(tmp_path: Path) -> None:
    found = imported("bert", tmp_path)
    assert found.reference is not None
    given = padded(found)
    wanted = unpadded(dict(found.reference(given)), given)
    Pipeline((Simplify(), PackRows(kv_dtype="bfloat16"))).run(found.model)
    assert 1e-5 < largest_error(run_packed(found.model, given), wanted) < 0.1


def test_the_form_says_which_input_is_what(tmp_path: Path) -> None:
    found = imported("bert", tmp_path)
    Pipeline((Simplify(), PackRows())).run(found.model)
    assert PackedRows.of(found.model) == PackedRows(
        "input_ids", "attention_mask", "token_type_ids", ("last_hidden_state",)
    )


def test_numbers_that_are_neither_ids_nor_images() -> None:
    model = _model("""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (float[batch, tokens, 8] x) => (float[batch, tokens, 8] y) { y = Relu (x) }
    """)
    with pytest.raises(UnsupportedError, match=r"neither ids \[batch, tokens\] of texts"):
        Pipeline((PackRows(),)).run(model)


def _model(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    describe(model, [])
    return model


def test_other_models_are_refused_by_their_inputs() -> None:
    model = _model("""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (float[batch, 3, 8, 8] x) => (float[batch, 3, 8, 8] y) { y = Relu (x) }
    """)
    with pytest.raises(UnsupportedError, match="read by Relu, and not by one convolution"):
        Pipeline((PackRows(),)).run(model)


def test_causal_attention_is_refused_with_its_reason() -> None:
    zeros = ", ".join(["0"] * 72)
    model = _model(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (int64[batch, tokens] ids) => (float[batch, tokens, 8] y)
        <float[9, 8] table = {{{zeros}}}, int64[4] split = {{0, 0, 2, 4}},
         int64[3] join = {{0, 0, 8}}> {{
            x = Gather <axis = 0> (table, ids)
            h = Reshape (x, split)
            t = Transpose <perm = [0, 2, 1, 3]> (h)
            a = Attention <is_causal = 1> (t, t, t)
            u = Transpose <perm = [0, 2, 1, 3]> (a)
            y = Reshape (u, join)
        }}
    """)
    with pytest.raises((UnsupportedError, InputError), match="it is causal"):
        Pipeline((Simplify(), PackRows())).run(model)


def test_an_operator_of_no_dense_form_is_named_before_a_later_pass_meets_it() -> None:
    zeros = ", ".join(["0"] * 72)
    model = _model(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (int64[batch, tokens] ids) => (float[batch, tokens, 8] y)
        <float[9, 8] table = {{{zeros}}}> {{
            x = Gather <axis = 0> (table, ids)
            y = Hardmax (x)
        }}
    """)
    with pytest.raises(
        UnsupportedError, match=r"^node_1 \(Hardmax\): not an operator of the dense"
    ):
        Pipeline((Simplify(), PackRows())).run(model)


def test_types_of_keys_and_values_without_a_kernel() -> None:
    with pytest.raises(InputError, match="kv_dtype"):
        PackRows(kv_dtype="int4")


def test_a_folder_that_is_read_twice_gives_one_graph(tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path / "b")
    graphs = []
    for _ in range(2):
        found = import_encoder(folder)
        FUSED.run(found.model)
        graphs.append([(n.op_type, n.name) for n in found.model.graph])
    assert graphs[0] == graphs[1]
    assert np.array(graphs).size
