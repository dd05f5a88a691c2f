"""Every trap of TensorRT's parser is refused before the parser sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from optc.backends.tensorrt.builder import run_builder
from optc.backends.tensorrt.dialect import check_model, problems
from optc.backends.tensorrt.provider import missing_reason
from optc.errors import UnsupportedError
from tests.backends.tensorrt.graphs import attention_layer, parse, request

needs_tensorrt = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())
_SM = ("sm_89",)


def _attention(model: ir.Model) -> ir.Node:
    return next(node for node in model.graph if node.op_type == "Attention")


def _with_nonpad() -> ir.Model:
    """Attention-24 with the lengths of the sequences instead of a mask."""
    model = attention_layer()
    lengths = ir.Value(name="lengths", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["B"]))
    model.graph.inputs.append(lengths)
    node = _attention(model)
    node.resize_inputs(7)
    node.replace_input_with(3, None)
    node.replace_input_with(6, lengths)
    model.graph.inputs.remove(next(v for v in model.graph.inputs if v.name == "mask"))
    return model


def _with_window() -> ir.Model:
    """Attention-25's sliding window, stated in a model of opset 24."""
    model = attention_layer()
    _attention(model).attributes["left_window_size"] = ir.AttrInt64("left_window_size", 16)
    return model


def _refusal(model: ir.Model, architectures: tuple[str, ...] = _SM) -> str:
    with pytest.raises(UnsupportedError) as caught:
        check_model(model, architectures)
    return caught.value.message


def test_the_layer_of_attention_over_slots_is_legal() -> None:
    assert list(problems(attention_layer(), ("sm_80", "sm_120"))) == []


def test_lengths_that_the_parser_drops() -> None:
    assert "Attention Attention.14: nonpad_kv_seqlen would be dropped" in _refusal(_with_nonpad())


def test_a_window_that_the_parser_ignores() -> None:
    assert "the attribute left_window_size would be ignored" in _refusal(_with_window())


@needs_tensorrt
@pytest.mark.parametrize("trap", [_with_nonpad, _with_window])
def test_tensorrt_itself_builds_these_two_without_an_error(tmp_path: Path, trap: object) -> None:
    """What makes them traps: the day that this fails, the rule can be looked at again."""
    assert callable(trap)
    model = trap()
    asked = request(model, tmp_path)
    if trap is _with_nonpad:
        profiles = []
        for profile in asked.profiles:
            shapes = {k: v for k, v in profile.shapes.items() if k != "mask"}
            shapes["lengths"] = shapes["write_indices"]
            profiles.append(type(profile)(profile.name, shapes))
        asked = request(model, tmp_path, profiles=tuple(profiles))
    run_builder(asked)
    assert Path(asked.engine).stat().st_size > 0


def test_newer_opsets_whose_attributes_are_ignored() -> None:
    model = attention_layer()
    model.opset_imports[""] = 25
    assert "the model uses opset 25" in _refusal(model)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("is_causal", 1, "is_causal=1 is not implemented, only 0"),
        ("softcap", 30.0, "softcap=30.0 is not implemented, only 0.0"),
        ("softmax_precision", 1, "the attribute softmax_precision would be ignored"),
        ("qk_matmul_output_mode", 3, "qk_matmul_output_mode=3 is not implemented"),
    ],
)
def test_attributes_of_attention(name: str, value: float, why: str) -> None:
    model = attention_layer()
    kind = ir.AttrInt64 if isinstance(value, int) else ir.AttrFloat32
    _attention(model).attributes[name] = kind(name, value)
    assert f"Attention Attention.14: {why}" in _refusal(model)


def test_attention_with_past_keys_or_several_outputs() -> None:
    model = attention_layer()
    node = _attention(model)
    node.resize_inputs(6)
    node.replace_input_with(4, model.graph.inputs[3])
    node.replace_input_with(5, model.graph.inputs[4])
    assert "write them with TensorScatter" in _refusal(model)


def test_attention_in_float32_has_no_fused_kernel() -> None:
    model = attention_layer()
    for value in _attention(model).inputs[:3]:
        assert value is not None
        value.type = ir.TensorType(ir.DataType.FLOAT)
    said = _refusal(model)
    assert "float has no fused kernel" in said
    assert "the mask is float16, it must be float" in said


def test_masks_shorter_than_the_keys_and_wide_heads() -> None:
    model = attention_layer()
    query, key, value, mask = _attention(model).inputs
    for one in (query, key, value, mask):
        assert one is not None
    mask.shape = ir.Shape(["B", 1, "S", 64])  # type: ignore[union-attr]
    query.shape = ir.Shape(["B", 4, "S", 512])  # type: ignore[union-attr]
    value.shape = ir.Shape(["B", 2, 128, 48])  # type: ignore[union-attr]
    said = _refusal(model)
    assert "the mask covers 64 of 128 keys" in said
    assert "a head dimension of 512 has no fused kernel" in said
    assert "values are 48 wide and keys 64" in said


def test_caches_that_are_not_inputs_and_outputs() -> None:
    model = attention_layer()
    scatter = next(node for node in model.graph if node.op_type == "TensorScatter")
    cache = scatter.inputs[0]
    copy = ir.node("Identity", [cache], name="copy")
    copy.outputs[0].shape, copy.outputs[0].type = cache.shape, cache.type  # type: ignore[union-attr]
    model.graph.insert_before(scatter, [copy])
    scatter.replace_input_with(0, copy.outputs[0])
    model.graph.outputs.remove(scatter.outputs[0])
    said = _refusal(model)
    assert "the cache must be an input of the graph" in said
    assert "the written cache must be an output of the graph" in said


@pytest.mark.parametrize(
    ("shape", "dtype", "why"),
    [
        (["B", 2, "L", 64], ir.DataType.FLOAT16, "all but B static"),
        (["B", 128, 128], ir.DataType.FLOAT16, "all but B static"),
        (["B", 2, 128, 64], ir.DataType.INT8, "a cache of int8 is not implemented"),
        (["B", 2, 128, 64], ir.DataType.FLOAT8E4M3FN, "a cache of float8e4m3fn is not"),
    ],
)
def test_caches_of_other_forms(shape: list[str | int], dtype: ir.DataType, why: str) -> None:
    model = attention_layer()
    cache = model.graph.inputs[3]
    cache.shape, cache.type = ir.Shape(shape), ir.TensorType(dtype)
    assert why in _refusal(model)


def test_circular_writes_and_other_axes() -> None:
    model = attention_layer()
    scatter = next(node for node in model.graph if node.op_type == "TensorScatter")
    scatter.attributes["mode"] = ir.AttrString("mode", "circular")
    scatter.attributes["axis"] = ir.AttrInt64("axis", 1)
    said = _refusal(model)
    assert "mode=circular is not implemented, only linear" in said
    assert "only the axis -2 is implemented" in said


def test_scatters_that_copy_a_cache() -> None:
    model = parse(
        """<ir_version: 11, opset_import: ["" : 24]>
        g (float16[8,64] cache, int64[n,1] at, float16[n,64] rows) => (float16[8,64] y)
        { y = ScatterND(cache, at, rows) }"""
    )
    assert "it would copy the whole of a graph input" in _refusal(model)


def _dequantized(
    dtype: int, shape: tuple[int, ...], scales: tuple[int, ...], zero: int | None, **options: int
) -> ir.Model:
    """x @ DequantizeLinear(weight)."""
    inputs = ["w", "s"] + (["z"] if zero is not None else [])
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["d"], name="dequantize", **options),
        helper.make_node("MatMul", ["x", "d"], ["y"], name="matmul"),
    ]
    tensors = [
        helper.make_tensor("w", dtype, shape, np.zeros(int(np.prod(shape)))),
        helper.make_tensor("s", TensorProto.FLOAT16, scales, np.ones(int(np.prod(scales)))),
    ]
    if zero is not None:
        values = np.full(int(np.prod(scales)), zero)
        tensors.append(helper.make_tensor("z", dtype, scales, values))
    half = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", half, ["T", shape[0]])],
        [helper.make_tensor_value_info("y", half, ["T", shape[1]])],
        tensors,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


_INT4, _INT8, _UINT4 = TensorProto.INT4, TensorProto.INT8, TensorProto.UINT4


@pytest.mark.parametrize(
    ("dtype", "scales", "zero", "options", "why"),
    [
        (_INT4, (4, 256), 0, {"axis": 0, "block_size": 128}, "int4 takes no zero point"),
        (_INT4, (2, 256), None, {"axis": 0, "block_size": 256}, "blocks of 256 would be dequant"),
        (_INT4, (256,), None, {"axis": 1}, "int4 per channel would be dequantized by a kernel of"),
        (_INT4, (6, 256), None, {"axis": 0, "block_size": 96}, "blocks of 96 would be dequantized"),
        (_INT8, (8, 256), None, {"axis": 0, "block_size": 64}, "int8 in blocks would be dequant"),
        (_INT8, (256,), 3, {"axis": 1}, "zero points other than 0 are not implemented"),
        (_UINT4, (16, 256), None, {"axis": 0, "block_size": 32}, "uint4 cannot be imported"),
        (TensorProto.UINT8, (256,), None, {"axis": 1}, "uint8 cannot be imported"),
        (TensorProto.FLOAT8E5M2, (256,), None, {"axis": 1}, "float8e5m2 cannot be imported"),
    ],
)
def test_quantized_weights_that_are_refused_or_slow(
    dtype: int, scales: tuple[int, ...], zero: int | None, options: dict[str, int], why: str
) -> None:
    assert why in _refusal(_dequantized(dtype, (512, 256), scales, zero, **options))


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_int4_in_blocks_that_are_fused_is_legal(block: int) -> None:
    scales = (512 // block, 256)
    model = _dequantized(_INT4, (512, 256), scales, None, axis=0, block_size=block)
    assert list(problems(model, ("sm_80",))) == []


def test_blocks_must_divide_the_weight() -> None:
    model = _dequantized(_INT4, (576, 256), (5, 256), None, axis=0, block_size=128)
    assert "blocks of 128 do not divide 576" in _refusal(model)


def test_int8_per_channel_is_legal_and_zero_zero_points_too() -> None:
    for zero in (None, 0):
        model = _dequantized(_INT8, (512, 256), (256,), zero, axis=1)
        assert list(problems(model, _SM)) == []


def test_lookups_in_quantized_tables() -> None:
    model = parse(
        """<ir_version: 11, opset_import: ["" : 24]>
        g (int64[T] tokens) => (float16[T,8] y)
        { rows = Gather<axis: int = 0>(table, tokens)
          y = DequantizeLinear(rows, scale) }""",
        table=np.zeros((16, 8), np.int8),
        scale=np.float16(0.1),
    )
    assert "there is no kernel for lookups in quantized tables" in _refusal(model)


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            "q, s, z = DynamicQuantizeLinear(x) y = Identity(q)",
            "DynamicQuantizeLinear is refused: the parser has no dynamic quantization",
        ),
        (
            "s = ReduceMax<keepdims: int = 0>(x) q = QuantizeLinear<output_dtype: int = 3>(x, s)"
            " y = DequantizeLinear(q, s)",
            "the scale is computed: there would be no low-precision matmul",
        ),
        ("q = QuantizeLinear(x, c) y = DequantizeLinear(q, c)", "activations cannot be uint8"),
        ("y = NonZero(x)", "NonZero is refused: it is not known to be built as meant"),
    ],
)
def test_forms_of_quantization_that_have_no_kernels(statements: str, why: str) -> None:
    text = f"""<ir_version: 11, opset_import: ["" : 24]>
        g (float[T,8] x) => (y) {{ {statements} }}"""
    assert why in _refusal(parse(text, c=np.float32(0.1)))


@pytest.mark.parametrize("op_type", ["MatMulNBits", "GroupQueryAttention"])
def test_contributed_operators_without_their_plugins(op_type: str) -> None:
    text = f"""<ir_version: 11, opset_import: ["" : 24, "com.microsoft" : 1]>
        g (float16[T,8] x) => (float16[T,8] y) {{ y = com.microsoft.{op_type}(x) }}"""
    assert f"com.microsoft::{op_type} is refused" in _refusal(parse(text))


def test_types_without_kernels_on_one_of_the_gpus() -> None:
    model = _dequantized(TensorProto.FLOAT8E4M3FN, (512, 256), (256,), None, axis=1)
    assert list(problems(model, ("sm_89", "sm_120"))) == []
    assert "has no kernels on sm_80, only from sm_89 on" in _refusal(model, ("sm_80", "sm_89"))


_FP4_STEP = """<ir_version: 11, opset_import: ["" : 24, "trt" : 1]>
    g (float16[B,S,64] x) => (float16[B,S,8] y) {
     q, s = trt.TRT_FP4DynamicQuantize<axis: int = -1, block_size: int = BLOCK,
                                       scale_type: int = TYPE>(x, c)
     xs = DequantizeLinear(s, c)
     xd = DequantizeLinear<axis: int = -1, block_size: int = 16>(q, xs)
     ws = DequantizeLinear(SCALES, c)
     wd = DequantizeLinear<axis: int = 0, block_size: int = 16>(w, ws)
     y = MatMul(X, wd) }"""


def _fp4_matmul(
    block: int = 16, kind: int = int(TensorProto.FLOAT8E4M3FN), scales: str = "e4m3", x: str = "xd"
) -> ir.Model:
    """A matmul in NVFP4, or one that differs from it in one respect."""
    text = _FP4_STEP.replace("BLOCK", str(block)).replace("TYPE", str(kind))
    text = text.replace("SCALES", scales).replace("X,", f"{x},")
    proto = onnx.parser.parse_model(text)
    for name, dtype, shape in (
        ("w", TensorProto.FLOAT4E2M1, (64, 8)),
        ("e4m3", TensorProto.FLOAT8E4M3FN, (4, 8)),
        ("int8", TensorProto.INT8, (4, 8)),
        ("c", TensorProto.FLOAT16, ()),
    ):
        values = np.ones(int(np.prod(shape)))
        proto.graph.initializer.append(helper.make_tensor(name, dtype, shape, values))
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}.{index}"
    model = ir.from_proto(proto)
    quantize = model.graph[0]
    types = (ir.DataType.FLOAT4E2M1, ir.DataType.FLOAT8E4M3FN)
    for value, dtype in zip(quantize.outputs, types, strict=True):
        value.type = ir.TensorType(dtype)
    return model


def test_nvfp4_is_legal_where_both_operands_are_and_the_gpu_has_it() -> None:
    assert list(problems(_fp4_matmul(), ("sm_120", "sm_121"))) == []
    assert "has no kernels on sm_89, only from sm_100 on" in _refusal(_fp4_matmul())


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (_fp4_matmul(block=32), "blocks of 32 are not implemented, only of 16"),
        (_fp4_matmul(kind=1), "scales cannot be float, only float8e4m3fn"),
        (_fp4_matmul(scales="int8"), "the scales of float4e2m1 must be float8e4m3fn"),
        (_fp4_matmul(x="x"), "would be dequantized by a kernel of its own; quantize the input too"),
    ],
)
def test_nvfp4_in_other_forms(model: ir.Model, why: str) -> None:
    assert why in _refusal(model, ("sm_120",))


def test_fp4_weights_with_scales_of_one_level() -> None:
    scales = (32, 256)
    fp4 = TensorProto.FLOAT4E2M1
    model = _dequantized(fp4, (512, 256), scales, None, axis=0, block_size=16)
    said = _refusal(model, ("sm_120",))
    assert "must be float8e4m3fn, dequantized by a scale of the tensor" in said


def test_nodes_without_names_of_their_own() -> None:
    model = attention_layer()
    for node in list(model.graph)[:2]:
        node.name = "same"
    assert "Constant same: the layer table needs a unique name" in _refusal(model)


def test_a_message_names_five_problems_and_counts_the_rest() -> None:
    model = attention_layer()
    for node in model.graph:
        node.name = ""
    assert _refusal(model).endswith("; and 13 more")
