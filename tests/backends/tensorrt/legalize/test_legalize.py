"""Legalization keeps the meaning: the lowered model equals the slot form on ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tensorrt.dialect import problems
from optc.backends.tensorrt.dialect.operators import STANDARD
from optc.backends.tensorrt.legalize import legalize
from optc.backends.tensorrt.legalize.attention import LowerAttention
from optc.backends.tensorrt.legalize.block_fp4 import BlockFp4
from optc.backends.tensorrt.legalize.inline import Inline
from optc.backends.tensorrt.legalize.names import UniqueNames
from optc.errors import InputError, UnsupportedError
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.static_kv import StaticKV
from optc.passes.quantize.compute_type import ComputeType
from optc.passes.quantize.quantize_static import QuantizeStatic
from tests.backends.tensorrt.lowered import LENGTH, operators, ragged, run, slot_form, step_feeds
from tests.support import oracle
from tests.support.calibration import set_input_ranges
from tests.support.families import FAMILIES
from tests.support.hadamard import rotation
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import Dense

ATTENDING = [name for name, one in FAMILIES.items() if len(one.attentions) == one.layers]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("family", ATTENDING)
def test_float16_equals_the_slot_form(family: str, rows: int) -> None:
    model = ragged(FAMILIES[family])
    reference = slot_form(model)
    legalized = legalize(model, LENGTH)
    assert legalized.dtype == "float16"
    assert legalized.portable is model
    assert list(problems(model, ("sm_80",))) == []
    feeds = step_feeds(reference, [0, 7, 20], rows, 60, LENGTH)
    for got, want in zip(run(model, feeds), run(reference, feeds), strict=True):
        scale = float(np.abs(want).max())
        assert float(np.abs(got.astype(np.float32) - want).max()) < 0.01 * scale


def _nvfp4_step() -> ir.Model:
    """A step whose matmuls are NVFP4, the head not."""
    shape = Dense(hidden=32, heads=4, kv_heads=2, head_dim=16, rotary_dim=16, inner=48)
    model = ragged(shape)
    set_input_ranges(model, 6.0)
    QuantizeStatic(dtype="nvfp4").run(model)
    return model


def test_nvfp4_is_legal_from_sm_100_on_and_its_portable_form_keeps_the_numbers() -> None:
    """What ONNX Runtime can run has the operator whole, in float32."""
    model = _nvfp4_step()
    reference = slot_form(model)
    legalized = legalize(model, LENGTH)
    assert "TRT_FP4DynamicQuantize" in operators(model)
    assert "BlockFp4MatMul" not in operators(model)
    assert list(problems(model, ("sm_120",))) == []
    assert "float4e2m1" in next(iter(problems(model, ("sm_89", "sm_120"))))
    feeds = step_feeds(reference, [0, 7, 20], 4, 60, LENGTH)
    for got, want in zip(run(legalized.portable, feeds), run(reference, feeds), strict=True):
        scale = float(np.abs(want).max())
        # a value next to a halfway point may be rounded the other way: a step of a block
        assert float(np.abs(got - want).max()) < 0.05 * scale
        assert float(np.abs(got - want).mean()) < 1e-3 * scale


def test_nvfp4_weights_of_the_dialect_are_those_of_the_operator() -> None:
    signature = "g (float[B,S,48] x) => (float[B,S,8] y)"
    model = model_of(signature, "y = MatMul (x, w)", {"w": f32(48, 8)})
    set_input_ranges(model, 4.0, ["w"])
    QuantizeStatic(dtype="nvfp4", head=True).run(model)
    BlockFp4().run(model)
    text = nodes_text(model)
    assert "trt.TRT_FP4DynamicQuantize <axis = -1, block_size = 16, scale_type = 17>" in text
    assert model.opset_imports["trt"] == 1
    values, scales, whole = (
        model.graph.initializers[name].const_value.numpy().astype(np.float64)  # type: ignore[union-attr]
        for name in ("w.quantized.e2m1", "w.scale", "w.global_scale")
    )
    tensor = model.graph.initializers["w.quantized.e2m1"].const_value
    assert tensor is not None
    assert tensor.dtype == ir.DataType.FLOAT4E2M1
    got = values * np.repeat(scales, 16, axis=0) * whole
    want = oracle.nvfp4_searched(np.ascontiguousarray(f32(48, 8).T), float(whole)).T
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_bfloat16_is_computed_where_the_recipe_says_so() -> None:
    """ONNX Runtime multiplies no bfloat16 on CPUs: the portable form has the same weights."""
    model = ragged(FAMILIES["llama"], ",cast-weights")
    reference = slot_form(model)
    legalized = legalize(model, LENGTH)
    assert legalized.dtype == "bfloat16"
    assert list(problems(model, ("sm_80",))) == []
    assert {value.dtype for value in model.graph.inputs[4:]} == {ir.DataType.BFLOAT16}
    feeds = step_feeds(reference, [0, 7, 20], 3, 60, LENGTH)
    got, want = run(legalized.portable, feeds)[0], run(reference, feeds)[0]
    assert float(np.abs(got - want).max()) < 0.02 * float(np.abs(want).max())


def test_attention_text() -> None:
    """One mask for all layers of a window; caches of static length."""
    signature = (
        "g (int32[B,S] tokens, int64[B] write_indices, float[B,2,Smax,4] past_k,"
        " float[B,2,Smax,4] past_v, float[B,S,16] q, float[B,S,8] k, float[B,S,8] v)"
        " => (float[B,S,16] o, float[B,2,Smax,4] pk, float[B,2,Smax,4] pv)"
    )
    nodes = """o, pk, pv = optc.SlotAttention <num_heads: int = 4, kv_num_heads: int = 2,
        scale: float = 0.5, softcap: float = 0.0, window: int = 3>
        (q, k, v, past_k, past_v, write_indices)"""
    model = model_of(signature, nodes)
    StaticKV(KVPools((), ())).attach(model)
    LowerAttention(slot_length=8).run(model)
    assert nodes_text(model) == expected(
        """\
        mask.3.rows = Shape <start = 1, end = 2> (tokens)
        mask.3.count = Squeeze (mask.3.rows, mask.3.axis)
        mask.3.row = Range (mask.3.0, mask.3.count, mask.3.1)
        mask.3.row_column = Unsqueeze (mask.3.row, mask.3.last)
        mask.3.start = Unsqueeze (write_indices, mask.3.behind)
        mask.3.place = Add (mask.3.start, mask.3.row_column)
        mask.3.seen = LessOrEqual (mask.3.keys, mask.3.place)
        mask.3.distance = Sub (mask.3.place, mask.3.keys)
        mask.3.near = Less (mask.3.distance, mask.3.window)
        mask.3.visible = And (mask.3.seen, mask.3.near)
        mask.3.added = Where (mask.3.visible, mask.3.shown, mask.3.hidden)
        layer.0.attention.k_heads = Reshape (k, layer.0.attention.k_split)
        layer.0.attention.k_by_head = Transpose <perm: ints = [0, 2, 1, 3]> \
(layer.0.attention.k_heads)
        pk = TensorScatter <axis = -2> (past_k, layer.0.attention.k_by_head, write_indices)
        layer.0.attention.v_heads = Reshape (v, layer.0.attention.v_split)
        layer.0.attention.v_by_head = Transpose <perm: ints = [0, 2, 1, 3]> \
(layer.0.attention.v_heads)
        pv = TensorScatter <axis = -2> (past_v, layer.0.attention.v_by_head, write_indices)
        layer.0.attention.q_heads = Reshape (q, layer.0.attention.q_split)
        layer.0.attention.q_by_head = Transpose <perm: ints = [0, 2, 1, 3]> \
(layer.0.attention.q_heads)
        layer.0.attention.attend = Attention <scale = 0.5> \
(layer.0.attention.q_by_head, pk, pv, mask.3.added)
        layer.0.attention.by_token = Transpose <perm: ints = [0, 2, 1, 3]> \
(layer.0.attention.attend)
        o = Reshape (layer.0.attention.by_token, layer.0.attention.merged)"""
    )
    assert [str(dim) for dim in model.graph.outputs[1].shape or ()] == ["B", "2", "8", "4"]


def test_layers_of_one_window_share_a_mask() -> None:
    model = ragged(Dense(windows=(5, 0, 5, 0)))
    legalize(model, LENGTH)
    masks = {n.inputs[3].name for n in model.graph if n.op_type == "Attention" and n.inputs[3]}
    assert masks == {"mask.added", "mask.5.added"}
    assert operators(model).count("Where") == 2


def test_slopes_are_added_to_the_mask_and_sinks_spelled_out() -> None:
    model = ragged(FAMILIES["alibi"])
    legalize(model, LENGTH)
    masks = {n.inputs[3].name for n in model.graph if n.op_type == "Attention" and n.inputs[3]}
    assert masks == {f"layer.{layer}.attention.leaning" for layer in range(2)}
    model = ragged(FAMILIES["sinks"])
    legalize(model, LENGTH)
    assert not {"Attention"} & set(operators(model))


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_token_wise_operators_equal_their_oracles(activation: str) -> None:
    signature = (
        "g (float[B,S,16] x, float[B,S,16] r, float[4] h, float[16] w)"
        " => (float[B,S,16] a, float[B,S,16] t, float[B,S,16] n, float[B,S,8] g)"
    )
    nodes = f"""a = optc.HeadRMSNorm <num_heads: int = 4, epsilon: float = 0.1> (x, h)
        t, n = optc.AddRMSNorm <epsilon: float = 0.2> (r, x, w)
        g = optc.GatedActivation <activation: string = "{activation}"> (x)"""
    model = model_of(signature, nodes)
    report = Inline().run(model)
    assert report.details == {"HeadRMSNorm": 1, "AddRMSNorm": 1, "GatedActivation": 1}
    x, r, h, w = f32(2, 3, 16), f32(2, 3, 16, seed=1), f32(4), f32(16)
    a, t, n, g = run(model, {"x": x, "r": r, "h": h, "w": w})
    np.testing.assert_allclose(a, oracle.head_norm(x, h, 4, 0.1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(t, r + x, rtol=1e-6)
    np.testing.assert_allclose(n, oracle.rms_norm(r + x, w, 0.2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(g, oracle.gated(x, activation), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [0, 1])
def test_heads_side_by_side(shared: int) -> None:
    width = 3 if shared else 12
    model = model_of(
        f"g (float[B,S,{width}] x, float[B,S,8] y) => (float[B,S,20] z)",
        f"z = optc.HeadConcat <num_heads: int = 4, shared: int = {shared}> (x, y)",
    )
    Inline().run(model)
    assert "HeadConcat" not in operators(model)
    assert list(problems(model, ("sm_80",))) == []
    x, y = f32(2, 5, width), f32(2, 5, 8, seed=1)
    first = np.broadcast_to(x.reshape(2, 5, -1, 3), (2, 5, 4, 3))
    want = np.concatenate([first, y.reshape(2, 5, 4, 2)], -1).reshape(2, 5, 20)
    np.testing.assert_array_equal(run(model, {"x": x, "y": y})[0], want)


def test_a_clamped_gate_equals_its_oracle() -> None:
    gate = "limit: float = 0.5, alpha: float = 1.75, up_shift: float = 1.0"
    model = model_of(
        "g (float[B,S,14] x) => (float[B,S,7] g)",
        f'g = optc.GatedActivation <activation: string = "silu", {gate}> (x)',
    )
    Inline().run(model)
    assert operators(model) == ["Split", "Min", "Clip", "Add", "Mul", "Sigmoid", "Mul", "Mul"]
    assert list(problems(model, ("sm_80",))) == []
    x = f32(2, 3, 14)
    want = oracle.gated(x, "silu", limit=0.5, alpha=1.75, up_shift=1.0)
    np.testing.assert_allclose(run(model, {"x": x})[0], want, rtol=1e-5, atol=1e-6)


def test_operators_without_a_form_are_named() -> None:
    model = model_of(
        "g (float[T,4] x, float[T,8] y) => (float[U,4] z)",
        "z = optc.ResidualHeads <heads: int = 2> (x, y)",
    )
    with pytest.raises(UnsupportedError, match="optc::ResidualHeads has no form in TensorRT's"):
        Inline().run(model)


def test_angles_stay_float32_and_weights_are_rounded_once() -> None:
    model = ragged(FAMILIES["llama"])
    legalize(model, LENGTH)
    by_type = {node.op_type: node for node in model.graph}
    for name in ("Cos", "Sin"):
        assert by_type[name].outputs[0].dtype is ir.DataType.FLOAT
    rotary = by_type["RotaryEmbedding"].inputs[1]
    assert rotary is not None
    assert rotary.dtype is ir.DataType.FLOAT16
    assert rotary.producer() is by_type["Cast"] or rotary.producer() is not None
    assert model.graph.outputs[0].dtype is ir.DataType.FLOAT
    floats = [v for v in model.graph.initializers.values() if v.dtype is ir.DataType.FLOAT]
    assert {str(v.name) for v in floats} == {"inv_freq.row"}


def test_types_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match="dtype=float64 is not possible"):
        ComputeType("float64")


def test_names_become_unique_and_fit_the_layer_table() -> None:
    model = model_of("g (float[T,4] x) => (float[T,4] z)", "y = Abs (x)\nw = Abs (y)\nz = Abs (w)")
    for node, name in zip(model.graph, ("a", "a", "odd, name]"), strict=True):
        node.name = name
    UniqueNames().run(model)
    assert [node.name for node in model.graph] == ["a", "a.2", "odd__name_"]


def test_bfloat16_rounds_as_ml_dtypes_does() -> None:
    weights = {"w": f32(4, 4)}
    model = model_of(
        "g (int32[T] positions, float[T,4] x) => (float[T,4] y)", "y = MatMul (x, w)", weights
    )
    ComputeType("bfloat16").run(model)
    (rounded,) = [v for v in model.graph.initializers.values() if str(v.name).endswith("bfloat16")]
    assert rounded.const_value is not None
    np.testing.assert_array_equal(
        rounded.const_value.numpy(), weights["w"].astype(ml_dtypes.bfloat16)
    )


@pytest.mark.parametrize(("width", "block"), [(16, 16), (40, 16), (100, 64), (256, 256)])
@pytest.mark.parametrize("inverse", [0, 1])
def test_rotations_are_products_of_small_matrices(width: int, block: int, inverse: int) -> None:
    stated = f"block: int = {block}, width: int = {width}, inverse: int = {inverse}"
    signature = f"g (float[B,S,{width}] x) => (float[B,S,{width}] y)"
    model = model_of(signature, f"y = optc.BlockHadamard <{stated}> (x)", {})
    assert Inline().run(model).details == {"BlockHadamard": 1}
    assert {node.op_type for node in model.graph} <= STANDARD.keys()
    x, matrix = f32(2, 3, width), rotation(width, block)
    expected = x @ (matrix.T if inverse else matrix)
    np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=0, atol=2e-6)
