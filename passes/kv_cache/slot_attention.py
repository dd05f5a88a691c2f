"""Paged attention as attention over slots: what `kv-slots` does to each layer."""

from __future__ import annotations

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import attributes_of, make_node, operand
from optc.ir.functions.operator import Attributes, AttributeValue
from optc.ir.graph import int_initializer, replace_node

#: Attributes of ``optc::SlotAttention``, all of which the paged ones have too.
_SHAPE = ("num_heads", "kv_num_heads", "scale", "softcap", "window", "chunk")
_RECENT = ("recent", "recent_group", "recent_layer")
_PAGED = (*_SHAPE, "group", "layer", "kv_dtype", "query_bits", *_RECENT)
_ROTARY = ("rotary_embedding_dim", "interleaved")


def unmerged(model: ir.Model, node: ir.Node) -> ir.Node:
    """Replace one ``optc::RotaryPagedAttention`` by what it was merged from (`fuse-rotary`):
    Split, head norms, rotary embedding, and the ``optc::PagedAttention`` that is returned."""
    attributes = attributes_of(node)
    qkv, cos, sin, *scales = node.inputs[:5]
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    key_dim, value_dim = int(attributes["key_dim"]), int(attributes["value_dim"])
    sizes = [heads * key_dim, kv_heads * key_dim, kv_heads * value_dim]
    split = ir.Node(
        "",
        "Split",
        [qkv, int_initializer(model.graph, sizes, "qkv_sizes")],
        ir.convenience.convert_attributes({"axis": -1}),
        num_outputs=3,
        name=f"{node.name}.split",
    )
    for value, kind, size in zip(split.outputs, "qkv", sizes, strict=True):
        _describe(value, f"{node.name}.{kind}", size)
    nodes, operands = [split], list(split.outputs)
    for index, count in enumerate((heads, kv_heads)):
        for new in _prepared(model, node, operands[index], scales[index], (cos, sin), count):
            nodes.append(new)
            _describe(new.outputs[0], f"{node.name}.{'qk'[index]}.{new.op_type}", sizes[index])
            operands[index] = new.outputs[0]
    paged = make_node(
        model,
        "PagedAttention",
        [*operands, *node.inputs[5:]],
        _some(attributes, _PAGED),
        name=node.name,
    )
    replace_node([node], [*nodes, paged], node.outputs, paged.outputs)
    return paged


def _prepared(
    model: ir.Model,
    node: ir.Node,
    source: ir.Value,
    scale: ir.Value | None,
    tables: tuple[ir.Value | None, ir.Value | None],
    heads: int,
) -> list[ir.Node]:
    """Head norm and rotary embedding of q or k, each where the attention had it."""
    attributes = attributes_of(node)
    nodes = []
    if scale is not None:
        options = {"num_heads": heads, "epsilon": attributes["epsilon"]}
        nodes.append(make_node(model, "HeadRMSNorm", [source, scale], options))
        source = nodes[-1].outputs[0]
    if attributes["rotary_embedding_dim"]:
        options = {"num_heads": heads, **{name: attributes[name] for name in _ROTARY}}
        nodes.append(make_node(model, "RotaryEmbedding", [source, *tables], options))
    return nodes


def _some(attributes: Attributes, names: tuple[str, ...]) -> dict[str, AttributeValue]:
    """Those of the names that a node states."""
    return {name: attributes[name] for name in names if name in attributes}


def _describe(value: ir.Value, name: str, width: int) -> None:
    value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
    value.shape = ir.Shape(["T", width])


def add_slots(model: ir.Model, node: ir.Node, writes: ir.Value) -> None:
    """Replace one ``optc::PagedAttention`` by ``optc::SlotAttention``; its slots become inputs
    and outputs of the graph in place of the pools."""
    graph = model.graph
    if operand(node, "distance_bias") is not None:
        raise UnsupportedError(
            "slots have no biases by distance", where=f"{node.name} (PagedAttention)"
        )
    attributes = attributes_of(node)
    layer = int(attributes["layer"])
    pools = node.inputs[3:5]
    pasts, presents = [], []
    for kind, pool in zip("kv", pools, strict=True):
        if pool is None or pool.shape is None:
            raise ValueError(f"{node.name}: the pool of a paged attention has no shape")
        shape = ir.Shape(["B", pool.shape[1], "Smax", pool.shape[3]])
        past = ir.Value(name=f"past_{kind}.{layer}", type=pool.type, shape=shape)
        graph.inputs.append(past)
        pasts.append(past)
        presents.append((f"present_{kind}.{layer}", shape))
    new = make_node(
        model,
        "SlotAttention",
        [
            *node.inputs[:3],
            *pasts,
            writes,
            operand(node, "sinks"),
            operand(node, "alibi_slopes"),
        ],
        _some(attributes, _SHAPE),
        name=node.name,
    )
    for value in node.outputs[len(new.outputs) :]:  # pools of the latest tokens
        graph.outputs.remove(value)
    replace_node([node], [new], node.outputs[: len(new.outputs)], new.outputs)
    for value, (name, shape) in zip(new.outputs[1:], presents, strict=True):
        value.name, value.shape = name, shape
