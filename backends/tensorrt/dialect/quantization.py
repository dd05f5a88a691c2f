"""The quantized forms that TensorRT computes in the type that they state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from optc.backends.tensorrt.dialect import block_fp4
from optc.ir.graph import constant, is_constant

#: Blocks of int4 weights that are dequantized inside of the matmul.
INT4_BLOCKS = (16, 32, 64, 128)
_INT4, _INT8 = ir.DataType.INT4, ir.DataType.INT8
_FP8, _FP4 = ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT4E2M1
_STORED = (_INT4, _INT8, _FP8, _FP4)


def check_dequantize(node: ir.Node) -> Iterator[str]:
    """Problems of a DequantizeLinear: its type, zero points and blocks."""
    x, scale = node.inputs[:2]
    dtype = None if x is None else x.dtype
    if dtype is not None and dtype not in _STORED:
        yield f"{dtype.name.lower()} cannot be imported, only int8, int4, float8e4m3fn, float4e2m1"
    if dtype is _INT4 and _zero_point(node) is not None:
        yield "int4 takes no zero point: quantize symmetrically"
    elif not _symmetric(node):
        yield "zero points other than 0 are not implemented: quantize symmetrically"
    if dtype is _FP4:
        yield from block_fp4.scale_problems(node)
    elif not is_constant(scale):
        yield "the scale is computed: there would be no low-precision matmul; calibrate it"
    block = node.attributes.get_int("block_size", 0)
    yield from _block_problems(node, dtype, block)


def _block_problems(node: ir.Node, dtype: ir.DataType | None, block: int) -> Iterator[str]:
    if dtype is _INT4 and block not in INT4_BLOCKS:
        what = f"blocks of {block}" if block else "int4 per channel"
        known = ", ".join(map(str, INT4_BLOCKS))
        yield f"{what} would be dequantized by a kernel of its own, blocks of {known} are fused"
    if dtype in (_INT8, _FP8) and block:
        yield f"{_text(dtype)} in blocks would be dequantized by a kernel of its own"
    weight = constant(node.inputs[0])
    axis = node.attributes.get_int("axis", 1)
    if weight is not None and block:
        size = weight.shape[axis]
        if isinstance(size, int) and size % block:
            yield f"blocks of {block} do not divide {size}"


def check_quantize(node: ir.Node) -> Iterator[str]:
    """Problems of a QuantizeLinear: its type, zero points and scale."""
    dtype = _quantized_type(node)
    if dtype not in (_INT8, _FP8):
        yield f"activations cannot be {_text(dtype)}, only int8 and float8e4m3fn"
    if not _symmetric(node):
        yield "zero points other than 0 are not implemented: quantize symmetrically"
    scale = constant(node.inputs[1])
    if scale is None:
        yield "the scale is computed: there would be no low-precision matmul; calibrate it"
    elif any(dim != 1 for dim in scale.shape):
        yield "activations need one scale for the whole tensor"


def check_gather(node: ir.Node) -> Iterator[str]:
    """Lookups in integer tables have no kernel."""
    table = node.inputs[0]
    if table is not None and table.dtype in (_INT8, _INT4) and is_constant(table):
        yield "there is no kernel for lookups in quantized tables; dequantize the table first"


def _quantized_type(node: ir.Node) -> ir.DataType | None:
    """The type that a QuantizeLinear gives; the standard's default is uint8."""
    stated = node.attributes.get_int("output_dtype", 0)
    zero_point = _zero_point(node)
    if stated:
        return ir.DataType(stated)
    return ir.DataType.UINT8 if zero_point is None else zero_point.dtype


def _zero_point(node: ir.Node) -> ir.Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def _symmetric(node: ir.Node) -> bool:
    """True if there is no zero point, or one that is known to be 0."""
    zero_point = _zero_point(node)
    if zero_point is None:
        return True
    tensor = constant(zero_point)
    return tensor is not None and not np.any(tensor.numpy().astype(np.float32))


def _text(dtype: ir.DataType | None) -> str:
    return "?" if dtype is None else dtype.name.lower()
