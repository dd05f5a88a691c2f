"""Pools of the keys and values of an encoder's states, which steps of a decoder read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import replace_node
from optc.passes.kv_cache.layer_pools import add_pools, layer_of
from optc.runtime.executable.executable import LayerKV


@dataclass(frozen=True)
class Cross:
    """Attentions to the states of an encoder.

    Attributes:
        nodes: In graph order.
        layers: Shape and type of the pools of each.
        states: Of a sequence at most; 0 where there are no such attentions.
    """

    nodes: tuple[ir.Node, ...]
    layers: tuple[LayerKV, ...]
    states: int


def take_cross(graph: ir.Graph, group: int, dtype: str) -> Cross:
    """The attentions of a dense graph to an encoder; the inputs that they read go away.

    Args:
        graph: In the dense form.
        group: Their KV group.
        dtype: What pools hold; int8 in place of int4.

    Raises:
        UnsupportedError: They are of several numbers of states, or of any number.
    """
    nodes = tuple(node for node in graph if is_op(node, "CrossAttention", domain=DOMAIN))
    kept = "int8" if dtype == "int4" else dtype
    layers = tuple(layer_of(node, group, kept) for node in nodes)
    read = dict.fromkeys(value for node in nodes for value in node.inputs[1:] if value is not None)
    sizes = {value.shape[1] for value in read if value.shape is not None}
    size = next(iter(sizes), 0)
    if len(sizes) > 1 or not isinstance(size, int):
        raise UnsupportedError(
            "attention to an encoder reads no fixed number of states", where="pass kv-cache"
        )
    for value in read:
        graph.inputs.remove(value)
    return Cross(nodes, layers, size)


def page_cross(model: ir.Model, cross: Cross, step: Mapping[str, ir.Value], first: int) -> None:
    """Give the attentions pools, which are entries of the form's layers from ``first`` on."""
    for index, (node, layer) in enumerate(zip(cross.nodes, cross.layers, strict=True), first):
        stated = attributes_of(node)
        attributes = stated | {"group": layer.group, "layer": index, "kv_dtype": layer.dtype}
        where = [step[name] for name in ("query_starts", "kv_lengths", "block_tables")]
        inputs = [node.inputs[0], *add_pools(model.graph, index, layer), *where]
        new = make_node(model, "PagedCrossAttention", inputs, attributes, name=node.name)
        new.outputs[0].shape = ir.Shape(["T", int(stated["num_heads"]) * layer.value_dim])
        replace_node([node], [new], node.outputs, new.outputs)
