"""Quantized forms that TensorRT has no kernels for, or slow ones, are refused before the parser."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from optc.backends.tensorrt.dialect import problems
from tests.backends.tensorrt.graphs import parse, refusal

_SM = ("sm_89",)


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
    assert why in refusal(_dequantized(dtype, (512, 256), scales, zero, **options))


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_int4_in_blocks_that_are_fused_is_legal(block: int) -> None:
    scales = (512 // block, 256)
    model = _dequantized(_INT4, (512, 256), scales, None, axis=0, block_size=block)
    assert list(problems(model, ("sm_80",))) == []


def test_blocks_must_divide_the_weight() -> None:
    model = _dequantized(_INT4, (576, 256), (5, 256), None, axis=0, block_size=128)
    assert "blocks of 128 do not divide 576" in refusal(model)


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
    assert "there is no kernel for lookups in quantized tables" in refusal(model)


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
    assert why in refusal(parse(text, c=np.float32(0.1)))


def test_types_without_kernels_on_one_of_the_gpus() -> None:
    model = _dequantized(TensorProto.FLOAT8E4M3FN, (512, 256), (256,), None, axis=1)
    assert list(problems(model, ("sm_89", "sm_120"))) == []
    assert "has no kernels on sm_80, only from sm_89 on" in refusal(model, ("sm_80", "sm_89"))


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
    assert "has no kernels on sm_89, only from sm_100 on" in refusal(_fp4_matmul())


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
    assert why in refusal(model, ("sm_120",))


def test_fp4_weights_with_scales_of_one_level() -> None:
    scales = (32, 256)
    fp4 = TensorProto.FLOAT4E2M1
    model = _dequantized(fp4, (512, 256), scales, None, axis=0, block_size=16)
    said = refusal(model, ("sm_120",))
    assert "must be float8e4m3fn, dequantized by a scale of the tensor" in said
