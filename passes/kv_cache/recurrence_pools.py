"""Pools of the states of linear attention: a KV group whose blocks hold the state behind the last
of their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import replace_node
from optc.passes.kv_cache.layer_pools import add_pools
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.recurrent_state import state_slots, state_width

#: Errors of a state go on to all tokens behind.
_TYPE = "float32"
#: A row goes on from the state behind the token before it.
WINDOW = 2


@dataclass(frozen=True)
class Recurrences:
    """The linear attention of a dense graph.

    Attributes:
        nodes: In graph order.
    """

    nodes: tuple[ir.Node, ...]

    @classmethod
    def of(cls, graph: ir.Graph, *, tree: bool) -> Recurrences:
        """That of a graph in the dense form.

        Raises:
            UnsupportedError: Rows may form a ``tree``, or heads have sizes that pools do not take.
        """
        nodes = tuple(node for node in graph if is_op(node, "LinearAttention", domain=DOMAIN))
        for node in nodes:
            where = f"kv-cache, node {node.name or '(unnamed)'}"
            if tree:
                raise UnsupportedError(
                    "a recurrence cannot follow a tree of rows",
                    where=where,
                    hint="leave kv-cache.tree out, and drafts that form trees",
                )
            if not state_slots(*_sizes(node)):
                raise UnsupportedError(
                    f"a state of {' by '.join(map(str, _sizes(node)))} has no place in a block",
                    where=where,
                    hint="multiples of 16 have one",
                )
        return cls(nodes)

    @property
    def slots(self) -> int:
        """Slots of a block that hold states; 0 where there are none."""
        return max((state_slots(*_sizes(node)) for node in self.nodes), default=0)

    def layers(self, group: int) -> list[LayerKV]:
        """Shape and type of the pools of each."""
        found = []
        for node in self.nodes:
            width = state_width(*_sizes(node))
            heads = node.attributes["num_heads"].as_int()
            found.append(LayerKV(group, heads, width, width, _TYPE))
        return found

    def page(
        self,
        model: ir.Model,
        step: Mapping[str, ir.Value],
        layers: list[LayerKV],
        first: int,
    ) -> list[list[ir.Value]]:
        """Give them pools, which are entries of the form's layers from ``first`` on: these."""
        pools = []
        for index, (node, layer) in enumerate(zip(self.nodes, layers, strict=True), first):
            pools.append(add_pools(model.graph, index, layer))
            names = ("slot_mapping", "query_starts", "kv_lengths", "block_tables")
            inputs = [*node.inputs[:5], *pools[-1], *(step[name] for name in names)]
            attributes = attributes_of(node) | {"group": layer.group, "layer": index}
            name = node.name or f"recurrence.{index}"
            paged = make_node(model, "PagedLinearAttention", inputs, attributes, name=name)
            for value, pool in zip(paged.outputs[1:], pools[-1], strict=True):
                value.name, value.shape = f"{pool.name}.out", pool.shape
            replace_node([node], [paged], node.outputs, paged.outputs[:1])
        return pools


def _sizes(node: ir.Node) -> tuple[int, int]:
    return node.attributes["key_dim"].as_int(), node.attributes["value_dim"].as_int()
