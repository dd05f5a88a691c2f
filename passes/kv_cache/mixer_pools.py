"""Pools of mixers of tokens that are no attention: what convolutions and recurrences have in
common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import attributes_of, make_node
from optc.ir.graph import replace_node
from optc.passes.kv_cache.layer_pools import add_pools
from optc.runtime.executable.executable import LayerKV

_STEP = ("slot_mapping", "query_starts", "kv_lengths", "block_tables")


@dataclass(frozen=True)
class Paged:
    """The operator that reads and writes pools in the place of one of the dense form.

    Attributes:
        op_type: Its name in the domain.
        operands: Operands that both have, the first ones.
    """

    op_type: str
    operands: int

    def page(
        self,
        model: ir.Model,
        nodes: Sequence[ir.Node],
        layers: Sequence[LayerKV],
        step: Mapping[str, ir.Value],
        first: int,
    ) -> list[list[ir.Value]]:
        """Give ``nodes`` pools, which are entries of the form's layers from ``first`` on: these."""
        pools = []
        for index, (node, layer) in enumerate(zip(nodes, layers, strict=True), first):
            pools.append(add_pools(model.graph, index, layer))
            operands = [*node.inputs, *[None] * self.operands][: self.operands]
            inputs = [*operands, *pools[-1], *(step[name] for name in _STEP)]
            attributes = attributes_of(node) | {"group": layer.group, "layer": index}
            name = node.name or f"mixer.{index}"
            paged = make_node(model, self.op_type, inputs, attributes, name=name)
            for value, pool in zip(paged.outputs[1:], pools[-1], strict=True):
                value.name, value.shape = f"{pool.name}.out", pool.shape
            replace_node([node], [paged], node.outputs, paged.outputs[:1])
        return pools


def refusal(node: ir.Node, problem: str, hint: str) -> UnsupportedError:
    """The refusal of a node by ``kv-cache``."""
    where = f"kv-cache, node {node.name or '(unnamed)'}"
    return UnsupportedError(problem, where=where, hint=hint)


def check_tree(nodes: Sequence[ir.Node], kind: str, *, tree: bool) -> None:
    """Refuse nodes of a ``kind`` where rows may form a tree.

    Raises:
        UnsupportedError: They may, and there is one.
    """
    if tree and nodes:
        hint = "leave kv-cache.tree out, and drafts that form trees"
        raise refusal(nodes[0], f"{kind} cannot follow a tree of rows", hint)
