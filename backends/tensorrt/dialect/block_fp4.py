"""NVFP4 as TensorRT multiplies it: both operands in blocks of 16 with scales of two levels."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from optc.ir.graph import constant

BLOCK = 16
_FP8, _FP4 = ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT4E2M1


def check_quantize_fp4(node: ir.Node) -> Iterator[str]:
    """Problems of a TRT_FP4DynamicQuantize: its blocks and its scales."""
    attributes = node.attributes
    block, axis = attributes.get_int("block_size", BLOCK), attributes.get_int("axis", -1)
    if block != BLOCK:
        yield f"blocks of {block} are not implemented, only of {BLOCK}"
    kind = attributes.get_int("scale_type", int(_FP8))
    if kind != int(_FP8):
        yield f"scales cannot be {ir.DataType(kind).name.lower()}, only float8e4m3fn"
    x, whole = node.inputs[:2]
    if constant(whole) is None:
        yield "the scale of the tensor is computed: calibrate it"
    shape = None if x is None else x.shape
    if shape is not None and len(shape) not in (2, 3):
        yield f"the input has {len(shape)} dimensions, 2 or 3 are possible"
    if shape is not None and isinstance(shape[axis], int) and shape[axis] % BLOCK:
        yield f"blocks of {BLOCK} do not divide {shape[axis]}"


def check_matmul(node: ir.Node) -> Iterator[str]:
    """FP4 weights are multiplied as such only with FP4 activations."""
    x, weight = (_dequantized_type(value) for value in node.inputs[:2])
    if weight is _FP4 and x is not _FP4:
        yield (
            "the weight is float4e2m1 and its input is not: the weight would be dequantized by a"
            " kernel of its own; quantize the input too"
        )


def scale_problems(node: ir.Node) -> Iterator[str]:
    """Problems of the scales of a DequantizeLinear of FP4 values: they must be E4M3
    scales, dequantized by one constant."""
    block = node.attributes.get_int("block_size", 0)
    if block != BLOCK:
        yield f"float4e2m1 needs blocks of {BLOCK}, not {block or 'none'}"
    scale = node.inputs[1]
    second = None if scale is None else scale.producer()
    if (
        second is None
        or second.op_type != "DequantizeLinear"
        or _type(second.inputs[0]) is not _FP8
    ):
        yield "the scales of float4e2m1 must be float8e4m3fn, dequantized by a scale of the tensor"


def _dequantized_type(value: ir.Value | None) -> ir.DataType | None:
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "DequantizeLinear":
        return None
    return _type(producer.inputs[0])


def _type(value: ir.Value | None) -> ir.DataType | None:
    return None if value is None else value.dtype
