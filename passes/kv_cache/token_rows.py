"""Collapse batch and sequence into one axis of token rows: every [B, S, …] becomes [T, …]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import (
    add_initializer,
    constant,
    constant_ints,
    int_initializer,
    is_constant,
    replace_node,
    width,
)

#: Standard operators that work element by element, or on the last axis by their definition.
_ELEMENT_WISE = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Neg",
    "Abs",
    "Sqrt",
    "Reciprocal",
    "Exp",
    "Erf",
)
_ACTIVATIONS = ("Tanh", "Sigmoid", "Gelu", "Relu", "Softplus", "Swish", "Cos", "Sin")
_STEPS = (
    *("Min", "Max", "Clip", "Floor", "Log", "Where", "Not"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
)
_ANY_RANK = frozenset(
    (*_ELEMENT_WISE, *_ACTIVATIONS, *_STEPS, "Cast", "Identity", "MatMul", "Constant")
)
#: Standard operators with an ``axis`` attribute that must mean the last axis.
_AXIS = frozenset({"Split", "Concat", "RMSNormalization", "LayerNormalization", "Softmax"})
#: Operators of ours that are token-wise whatever the rank.
_OURS = frozenset(
    {
        *("HeadRMSNorm", "GatedActivation", "AddRMSNorm", "Attention", "BlockHadamard"),
        *("HeadConcat", "SplitHeads", "MergeHeads"),
        *(
            "TopKRouter",
            "ExpertMatMul",
            "CombineExperts",
            "PackedAttention",
            "PoolRows",
            "WindowRows",
            "CrossAttention",
            "CausalConv",
            "LinearAttention",
        ),
    }
)
#: Operators whose output has the type of their first input.
_KEEP_TYPE = ("Unsqueeze", "Identity")


def collapse(model: ir.Model) -> None:
    """Make every node of the dense form independent of the rank, and restate value shapes.

    Legal cases:
        1. element-wise operators, MatMul and our token-wise operators stay;
        2. operators over the last axis get axis -1;
        3. Unsqueeze and Slice of the last axis get axis -1;
        4. Gather over rows (axis 0) of a constant stays;
        5. RotaryEmbedding, of fixed rank by its definition, becomes ``optc::RotaryEmbedding``;
        6. constants of rank 3 lose their leading axes of size 1.

    Raises:
        UnsupportedError: A node is none of these; named with its operator.
    """
    for node in list(model.graph):
        _squeeze_constants(model.graph, node)
        if node.domain == DOMAIN and node.op_type in _OURS:  # case 1
            continue
        if node.domain or not _collapse_standard(model, node):
            raise UnsupportedError(
                f"{node.domain + '::' if node.domain else ''}{node.op_type} is not token-wise",
                where=f"kv-cache, node {node.name or '(unnamed)'}",
                hint="the dense form allows the operators of docs/normal-form.md only",
            )
    for node in model.graph:
        for value in node.outputs:
            _restate_shape(value, "T")


def narrow_to_int32(graph: ir.Graph, value: ir.Value) -> None:
    """Make the graph input ``value`` int32 where the dense form had int64.

    Lookups and casts take either type; before integer arithmetic the old type is restored.
    """
    value.type = ir.TensorType(ir.DataType.INT32)
    if _takes_int32(value):
        _retype(value)
        return
    cast = ir.Node(
        "",
        "Cast",
        [value],
        ir.convenience.convert_attributes({"to": int(ir.DataType.INT64)}),
        name=f"{value.name}.wide",
    )
    wide = cast.outputs[0]
    wide.name, wide.type, wide.shape = cast.name, ir.TensorType(ir.DataType.INT64), value.shape
    value.replace_all_uses_with(wide)
    cast.replace_input_with(0, value)
    graph.insert_before(graph[0], [cast])


def _takes_int32(value: ir.Value) -> bool:
    return all(
        is_op(node, "Cast", "Gather")
        or (is_op(node, *_KEEP_TYPE) and _takes_int32(node.outputs[0]))
        for node in value.consumers()
    )


def _retype(value: ir.Value) -> None:
    for node in value.consumers():
        if is_op(node, *_KEEP_TYPE):
            node.outputs[0].type = value.type
            _retype(node.outputs[0])


def _collapse_standard(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite one standard node; False if it is not token-wise."""
    if node.op_type in _ANY_RANK:
        return True
    if node.op_type in _AXIS:
        return _last_axis_attribute(node)
    rule = _RULES.get(node.op_type)
    return rule is not None and rule(model, node)


def _last_axis_attribute(node: ir.Node) -> bool:
    default = 0 if node.op_type == "Split" else -1
    axis = node.attributes.get_int("axis", default)
    if not _is_last(axis, node.inputs[0]):
        return False
    node.attributes["axis"] = ir.AttrInt64("axis", -1)
    return True


def _is_last(axis: int | None, value: ir.Value | None) -> bool:
    """True if ``axis`` is the last one; all dense values are [B, S, N] unless known otherwise."""
    rank = len(value.shape) if value is not None and value.shape is not None else 3
    return axis in (-1, rank - 1)


def _gather(model: ir.Model, node: ir.Node) -> bool:
    return node.attributes.get_int("axis", 0) == 0 and is_constant(node.inputs[0])


def _unsqueeze(model: ir.Model, node: ir.Node) -> bool:
    axes = constant_ints(node.inputs[1])
    data = node.inputs[0]
    rank = len(data.shape) if data is not None and data.shape is not None else 2
    if axes not in ([-1], [rank]):
        return False
    node.replace_input_with(1, int_initializer(model.graph, [-1], "last_axis"))
    return True


def _slice(model: ir.Model, node: ir.Node) -> bool:
    axes = constant_ints(node.inputs[3]) if len(node.inputs) > 3 else None
    if axes is None or len(axes) != 1 or not _is_last(axes[0], node.inputs[0]):
        return False
    node.replace_input_with(3, int_initializer(model.graph, [-1], "last_axis"))
    return True


def _rotary(model: ir.Model, node: ir.Node) -> bool:
    cos = node.inputs[1]
    heads = node.attributes.get_int("num_heads", 0)
    half = width(cos) if cos is not None else None
    if not heads or half is None:
        return False
    attributes = {
        "num_heads": heads,
        "rotary_embedding_dim": node.attributes.get_int("rotary_embedding_dim", 0) or 2 * half,
        "interleaved": node.attributes.get_int("interleaved", 0),
    }
    new = make_node(model, "RotaryEmbedding", node.inputs[:3], attributes, name=node.name)
    replace_node([node], [new], node.outputs, new.outputs)
    return True


_RULES: dict[str, Callable[[ir.Model, ir.Node], bool]] = {
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "RotaryEmbedding": _rotary,
}


def _squeeze_constants(graph: ir.Graph, node: ir.Node) -> None:
    """Case 6: a constant [1, 1, N] would broadcast rows [T, N] back to rank 3."""
    if is_op(node, "Constant"):
        return
    for index, value in enumerate(node.inputs):
        tensor = constant(value)
        if tensor is None or len(tensor.shape) < 3:
            continue
        array = tensor.numpy()
        flat = np.squeeze(
            array, axis=tuple(i for i in range(array.ndim - 1) if array.shape[i] == 1)
        )
        name = value.name if value is not None and value.name else "constant"
        node.replace_input_with(index, add_initializer(graph, ir.tensor(flat), f"{name}.row"))


def _restate_shape(value: ir.Value, rows: str) -> None:
    """[B, S, …] as [rows, …]; constants and unknown shapes stay."""
    if value.shape is None or is_constant(value) or len(value.shape) < 2:
        return
    value.shape = ir.Shape([rows, *list(value.shape)[2:]])
