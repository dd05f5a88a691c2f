"""Small graph helpers that passes share: constants, widths, insertion, replacement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

#: Operators of which the last axis of the output is that of the first input.
_SAME_WIDTH = frozenset(
    {
        *("RotaryEmbedding", "HeadRMSNorm", "RMSNormalization", "LayerNormalization"),
        "BlockHadamard",
        *("Cast", "Identity", "Cos", "Sin", "Tanh", "Sigmoid", "Gelu", "Gather"),
    }
)
_BROADCAST = frozenset({"Add", "Sub", "Mul", "Div"})


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor behind an initializer or a Constant node's output, else None."""
    return None if value is None else ir.convenience.get_const_tensor(value)


def constant_ints(value: ir.Value | None) -> list[int] | None:
    """The integers of a small constant, flattened; None if ``value`` is not constant."""
    tensor = constant(value)
    return None if tensor is None else [int(x) for x in np.ravel(tensor.numpy())]


def is_constant(value: ir.Value | None) -> bool:
    """True if ``value`` is absent, an initializer, or a Constant node's output."""
    if value is None or value.const_value is not None:
        return True
    producer = value.producer()
    return producer is not None and producer.op_type == "Constant"


def width(value: ir.Value) -> int | None:
    """Size of the last axis, from the value's shape or from what produces it."""
    if value.shape is not None and len(value.shape) and isinstance(value.shape[-1], int):
        return value.shape[-1]
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Split":
        sizes = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
        return sizes[list(node.outputs).index(value)] if sizes else None
    if node.op_type == "MatMul" and node.inputs[1] is not None:
        return width(node.inputs[1])
    if node.op_type in _SAME_WIDTH and node.inputs[0] is not None:
        return width(node.inputs[0])
    if node.op_type in _BROADCAST:
        widths = [width(v) for v in node.inputs if v is not None]
        widest = max((w for w in widths if w is not None), default=None)
        # an operand wider than 1 has the width of the result, the others unknown or not
        return widest if widest != 1 or None not in widths else None
    return None


def add_initializer(
    graph: ir.Graph, tensor: ir.TensorProtocol, name: str, metadata: dict[str, str] | None = None
) -> ir.Value:
    """Register ``tensor`` as an initializer called ``name``, or ``name.2``, … if taken."""
    unique = name
    for number in itertools.count(2):
        if unique not in graph.initializers:
            break
        unique = f"{name}.{number}"
    value = ir.Value(
        name=unique,
        type=ir.TensorType(ir.DataType(tensor.dtype)),
        shape=ir.Shape([dim for dim in tensor.shape if isinstance(dim, int)]),
        const_value=tensor,
        metadata_props=metadata,
    )
    graph.register_initializer(value)
    return value


def int_initializer(graph: ir.Graph, values: Sequence[int], name: str) -> ir.Value:
    """A 1-D int64 initializer."""
    return add_initializer(graph, ir.tensor(list(values), ir.DataType.INT64, name=name), name)


def replace_node(
    old: Sequence[ir.Node],
    new: Sequence[ir.Node],
    old_values: Sequence[ir.Value],
    new_values: Sequence[ir.Value],
) -> None:
    """Put ``new`` where ``old[-1]`` stands, move uses of ``old_values`` over, remove ``old``.

    New values take over the names, types and shapes of the old ones; nodes of ``old`` must have
    no other uses left than each other's.
    """
    graph = old[-1].graph
    if graph is None:
        raise ValueError(f"{old[-1].name}: node is in no graph")
    for before, after in zip(old_values, new_values, strict=True):
        after.name, after.shape = before.name, before.shape
        after.type = after.type or before.type
        before.name = f"{before.name}.old"
    graph.insert_before(old[-1], list(new))
    ir.convenience.replace_all_uses_with(list(old_values), list(new_values), True)
    graph.remove(list(old), safe=True)


def remove_unused(model: ir.Model) -> None:
    """Drop nodes and initializers that no output needs."""
    RemoveUnusedNodesPass()(model)
