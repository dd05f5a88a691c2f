"""Products by weights in blocks, as ONNX Runtime has a kernel for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import remove_unused

CONTRIB = "com.microsoft"
#: The kernel's inputs in 8 bits, rounded in the weight's blocks.
_ROUNDED = 4
#: Where the kernel has 0.
_ZERO = 128


def fuse_block_products(model: ir.Model) -> int:
    """MatMul by ``Transpose(Reshape(DequantizeLinear(u8 [N, G, g])))``, all constant, becomes
    MatMulNBits, which rounds its other operand to 8 bits in the same blocks, and multiplies
    integers.

    Returns:
        How many products were fused.
    """
    count = 0
    for node in list(model.graph):
        if is_op(node, "MatMul") and (table := _table(node)) is not None:
            _fuse(model.graph, node, *table)
            count += 1
    if count:
        model.opset_imports[CONTRIB] = 1
        remove_unused(model)
    return count


def _table(node: ir.Node) -> tuple[ir.Value, npt.NDArray[Any], int] | None:
    """Codes u8 [N, G, g], scales [N, G] and g of the second operand; None if it is none."""
    value = node.inputs[1]
    for kind in ("Transpose", "Reshape"):
        maker = None if value is None else value.producer()
        if maker is None or not is_op(maker, kind):
            return None
        value = maker.inputs[0]
    maker = None if value is None else value.producer()
    if maker is None or not is_op(maker, "DequantizeLinear") or len(maker.inputs) != 3:
        return None
    codes, scales, zeros = (None if one is None else one.const_value for one in maker.inputs)
    if codes is None or scales is None or zeros is None or maker.inputs[0] is None:
        return None
    known = codes.dtype == ir.DataType.UINT8 and len(codes.shape) == 3
    if not known or not (zeros.numpy() == _ZERO).all():
        return None
    rows, count, size = codes.numpy().shape
    return maker.inputs[0], scales.numpy().reshape(rows, count), size


def _fuse(
    graph: ir.Graph, node: ir.Node, codes: ir.Value, scales: npt.NDArray[Any], size: int
) -> None:
    name = f"{node.outputs[0].name}.block_scales"
    tensor = ir.tensor(np.ascontiguousarray(scales, np.float32), name=name)
    stored = ir.Value(
        name=name,
        const_value=tensor,
        shape=ir.Shape(scales.shape),
        type=ir.TensorType(ir.DataType.FLOAT),
    )
    graph.register_initializer(stored)
    rows, count = scales.shape
    fused = ir.node(
        "MatMulNBits",
        [node.inputs[0], codes, stored],
        {
            "K": count * size,
            "N": rows,
            "bits": 8,
            "block_size": size,
            "accuracy_level": _ROUNDED,
        },
        domain=CONTRIB,
        name=f"{node.outputs[0].name}.blocks",
    )
    fused.outputs[0].shape, fused.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], [fused], [node.outputs[0]], [fused.outputs[0]]
    )
