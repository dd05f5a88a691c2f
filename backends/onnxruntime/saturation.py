"""Products of bytes whose sums of pairs may exceed 16 bits.

ONNX Runtime multiplies u8 activations by s8 weights with vpmaddubsw on x86 CPUs without VNNI: the
sum of two products saturates at 32767. With weights of 7 bits it never does.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant

#: The largest weight whose products with 255 make a pair that fits.
_MOST = 64
_PRODUCTS = ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
#: Operators that multiply what is dequantized in front of them, as one kernel of integers.
_FUSED = ("MatMul", "Gemm", "Conv")


def saturates(model: ir.Model) -> bool:
    """True if a product of bytes has a weight beyond 7 bits."""
    return any(_large(value) for node in model.graph for value in _weights(node))


def _weights(node: ir.Node) -> list[ir.Value | None]:
    """Operands that may be int8 weights of a product with u8 activations."""
    if is_op(node, *_PRODUCTS):
        return list(node.inputs)
    if not is_op(node, *_FUSED):
        return []
    behind = [None if value is None else value.producer() for value in node.inputs[:2]]
    before = [one for one in behind if one is not None and is_op(one, "DequantizeLinear")]
    return [one.inputs[0] for one in before] if len(before) == len(behind) else []


def _large(value: ir.Value | None) -> bool:
    tensor = constant(value)
    if tensor is None or tensor.dtype != ir.DataType.INT8 or len(tensor.shape) < 2:
        return False
    return bool(np.abs(tensor.numpy().astype(np.int16)).max(initial=0) > _MOST)
