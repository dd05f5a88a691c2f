"""The passes from the ragged step to ONNX Runtime's operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.onnxruntime.legalize import legalize
from optc.backends.onnxruntime.legalize.fused import FuseOperators
from optc.errors import UnsupportedError
from optc.ir.pipeline.record import PassRecord
from optc.ir.weights import LazyWeight
from optc.passes.kv_cache.kv_cache import KVCache
from tests.backends.onnxruntime.engines import FAMILIES
from tests.support import oracle
from tests.support.families import FUSED, model_after
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.ragged import run

INT4 = "quantize-weights{bits=4,group_size=32,symmetric=false},fuse-norm-quantize"


def lowered(shape: Dense, spec: str) -> tuple[ir.Model, tuple[PassRecord, ...]]:
    model = model_after(spec, shape)
    return model, legalize(model, 65)


def test_activations_of_16_bits_stay_float() -> None:
    model, _ = lowered(Dense(), f"{FUSED},{INT4.replace('bits=4', 'bits=4,activation_bits=16')}")
    matmuls = [node for node in model.graph if node.op_type == "MatMulNBits"]
    assert matmuls
    assert {node.attributes.get_int("accuracy_level", 0) for node in matmuls} == {1}


def test_text() -> None:
    """An int4 llama of one layer with a window: rotary inside attention, activations float."""
    shape = Dense(head_dim=16, rotary_dim=16, windows=(7,), inner=64, heads=2)
    model, runs = lowered(shape, f"{FUSED},{INT4}")
    assert nodes_text(model) == expected(
        """
        gather.table = Reshape (embed.weight.quantized.2, gather.flat)
        gather_out = com.microsoft.GatherBlockQuantized <bits = 8, block_size = 32, \
gather_axis = 0, quantize_axis = 1> (gather.table, tokens, embed.weight.scale.2)
        rmsnormalization_out.q.float = SimplifiedLayerNormalization <axis = -1, epsilon = \
1e-05> (gather_out, 0.input_norm.weight)
        0.q+k+v.weight.matmul = com.microsoft.MatMulNBits <K = 32, N = 96, bits = 4, \
block_size = 32, accuracy_level = 4> (rmsnormalization_out.q.float, \
0.q+k+v.weight.quantized.2, 0.q+k+v.weight.scale.2, 0.q+k+v.weight.zero_point.2)
        attention_out, present_k.0, present_v.0 = com.microsoft.GroupQueryAttention <num_heads \
= 2, kv_num_heads = 2, scale = 0.25, softcap = 0, local_window_size = 7, do_rotary = 1, \
rotary_interleaved = 0> (0.q+k+v.weight.matmul, , , past_k.0, past_v.0, seqlens_k, \
total_sequence_length, cos_out.table, sin_out.table)
        logit_index.column = Unsqueeze (logit_index, last_axis.2)
        attention_out.wanted = GatherND <batch_dims = 1> (attention_out, logit_index.column)
        matmul_out_4 = com.microsoft.MatMulNBits <K = 32, N = 32, bits = 4, block_size = 32, \
accuracy_level = 4> (attention_out.wanted, 0.o.weight.quantized.2, 0.o.weight.scale.2, \
0.o.weight.zero_point.2)
        gather_out.wanted = GatherND <batch_dims = 1> (gather_out, logit_index.column)
        rmsnormalization_out_2.q.float, , , add_out = \
com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-05> (matmul_out_4, \
gather_out.wanted, 0.mlp_norm.weight)
        0.gate+up.weight.matmul = com.microsoft.MatMulNBits <K = 32, N = 128, bits = 4, \
block_size = 32, accuracy_level = 4> (rmsnormalization_out_2.q.float, \
0.gate+up.weight.quantized.2, 0.gate+up.weight.scale.2, 0.gate+up.weight.zero_point.2)
        mul_out_3.q.float.gate, mul_out_3.q.float.up = Split <axis = -1, num_outputs = 2> \
(0.gate+up.weight.matmul)
        mul_3.gated.active = com.microsoft.QuickGelu <alpha = 1> (mul_out_3.q.float.gate)
        mul_out_3.q.float = Mul (mul_3.gated.active, mul_out_3.q.float.up)
        matmul_out_7 = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32, \
accuracy_level = 4> (mul_out_3.q.float, 0.down.weight.quantized.2, 0.down.weight.scale.2, \
0.down.weight.zero_point.2)
        rmsnormalization_out_3.q.float = com.microsoft.SkipSimplifiedLayerNormalization \
<epsilon = 1e-05> (add_out, matmul_out_7, final_norm.weight)
        logits = com.microsoft.MatMulNBits <K = 32, N = 61, bits = 8, block_size = 32, \
accuracy_level = 4> (rmsnormalization_out_3.q.float, head.weight.quantized.2, \
head.weight.scale.2)"""
    )
    assert [v.name for v in model.graph.inputs] == [
        *("tokens", "logit_index", "past_k.0", "past_v.0", "seqlens_k", "total_sequence_length")
    ]
    facts = {run.name: run.report.facts for run in runs}
    assert facts["ort-matmuls"] == {"activations_no_longer_quantized": 5}


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_integer_scales_become_int8_per_channel(bits: int) -> None:
    shape = Dense(head_dim=16, rotary_dim=16, windows=(7,), inner=64, heads=2)
    integer = INT4.replace("symmetric=false", "symmetric=false,group_scales=int")
    integer = integer.replace("bits=4", f"bits={bits}")
    model, _ = lowered(shape, f"{FUSED},{integer}")
    matmuls = [n for n in model.graph if n.op_type == "MatMulNBits"]
    assert len(matmuls) == 5
    assert {n.attributes.get_int("bits", 0) for n in matmuls} == {8}
    assert not [name for name in model.graph.initializers if "zero_point" in name]


def test_float_weights_are_stored_by_output_channel() -> None:
    model, _ = lowered(Dense(windows=(0,)), FUSED)
    matmuls = [n for n in model.graph if n.op_type == "FusedMatMul"]
    assert len(matmuls) == 5
    for node in matmuls:
        weight = node.inputs[1]
        assert weight is not None
        assert isinstance(weight.const_value, LazyWeight)
        assert not weight.const_value.transposed


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "attention and rotary and packed"),
        ("qwen3", "attention and rotary"),  # head norms lie between
        ("no positions", "attention and packed"),
        ("stablelm", "attention"),  # the operator rotates multiples of 16 only
    ],
)
def test_how_attention_is_taken(family: str, kind: str) -> None:
    _, runs = lowered(FAMILIES[family], FUSED)
    assert list(runs[-1].report.details) == [kind]


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("odd heads", "keys and values are not of one width"),
        ("sinks", "its heads have sinks"),
        ("alibi", "its heads have slopes"),
        ("chunks", "its rows see chunks"),
    ],
)
def test_what_the_operator_does_not_take_keeps_its_function(family: str, why: str) -> None:
    model, runs = lowered(
        replace(FAMILIES[family], chunks=(8, 8) if family == "chunks" else ()), FUSED
    )
    assert runs[-1].report.details == {}
    assert runs[-1].report.skipped[0].endswith(why)
    assert [n.op_type for n in model.graph].count("SlotAttention") == 2
    assert "write_indices" in {v.name for v in model.graph.inputs}


def test_a_tied_head_is_stored_once() -> None:
    for spec in (FUSED, f"{FUSED},{INT4}", f"{FUSED},cast-weights"):
        model, _ = lowered(FAMILIES["llama"], spec)
        vocab = [
            value.name
            for value in model.graph.initializers.values()
            if value.shape is not None and value.shape[0] == 61 and "scale" not in str(value.name)
            and "zero" not in str(value.name)
        ]  # fmt: skip
        assert len(vocab) == 1, spec


def test_trees_are_refused() -> None:
    model = dense_model(FAMILIES["llama"])
    KVCache(tree=True).run(model)
    with pytest.raises(UnsupportedError, match="slots have no place for tree_parent"):
        legalize(model, 65)


@pytest.mark.parametrize(("gate", "kept"), [("", 0), (", limit: float = 0.5", 1)])
def test_a_clamped_gate_keeps_its_function(gate: str, kept: int) -> None:
    """QuickGelu has no limit."""
    node = f'y = optc.GatedActivation <activation: string = "silu"{gate}> (x)'
    model = model_of("g (float[S,14] x) => (float[S,7] y)", node)
    assert FuseOperators().run(model).count == 1 - kept
    x = f32(3, 14)
    want = oracle.gated(x, "silu", limit=0.5 if gate else np.inf)
    np.testing.assert_allclose(run(model, {"x": x})[0], want, rtol=1e-5, atol=1e-6)
