"""Pools of the rows that convolutions along the tokens read: a KV group with a window of a few
tokens, so that everything that holds for keys and values holds for these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import replace_node
from optc.passes.kv_cache.layer_pools import add_pools
from optc.runtime.executable.executable import LayerKV

#: Rows are few whatever the context, so that nothing is gained by rounding them.
_TYPE = "float32"


@dataclass(frozen=True)
class Convolutions:
    """The convolutions of a dense graph.

    Attributes:
        nodes: In graph order.
    """

    nodes: tuple[ir.Node, ...]

    @classmethod
    def of(cls, graph: ir.Graph, *, tree: bool) -> Convolutions:
        """Those of a graph in the dense form.

        Raises:
            UnsupportedError: Rows may form a ``tree``, or channels cannot be halved.
        """
        nodes = tuple(node for node in graph if is_op(node, "CausalConv", domain=DOMAIN))
        for node in nodes:
            where = f"kv-cache, node {node.name or '(unnamed)'}"
            if tree:
                raise UnsupportedError(
                    "a convolution along the tokens cannot follow a tree of rows",
                    where=where,
                    hint="leave kv-cache.tree out, and drafts that form trees",
                )
            if _channels(node) % 2:
                raise UnsupportedError(
                    f"a convolution along the tokens has {_channels(node)} channels, an odd number",
                    where=where,
                    hint="its pools have half of them each",
                )
        return cls(nodes)

    @property
    def windows(self) -> tuple[int, ...]:
        """Rows that each reads, its own included."""
        return tuple(node.attributes["kernel"].as_int() for node in self.nodes)

    def layers(self, windows: tuple[int, ...]) -> list[LayerKV]:
        """Shape and type of the pools of each, which halves of the channels lie in, where KV groups
        have these windows."""
        return [
            LayerKV(windows.index(window), 1, _channels(node) // 2, _channels(node) // 2, _TYPE)
            for node, window in zip(self.nodes, self.windows, strict=True)
        ]

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
            operands = [*node.inputs, *[None] * (3 - len(node.inputs))][:3]
            inputs = [*operands, *pools[-1], *(step[name] for name in names)]
            attributes = attributes_of(node) | {"group": layer.group, "layer": index}
            name = node.name or f"convolution.{index}"
            paged = make_node(model, "PagedCausalConv", inputs, attributes, name=name)
            for value, pool in zip(paged.outputs[1:], pools[-1], strict=True):
                value.name, value.shape = f"{pool.name}.out", pool.shape
            replace_node([node], [paged], node.outputs, paged.outputs[:1])
        return pools


def _channels(node: ir.Node) -> int:
    return node.attributes["channels"].as_int()
