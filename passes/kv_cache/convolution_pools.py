"""Pools of the rows that convolutions along the tokens go on from: states in blocks, as those of
recurrences."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.passes.kv_cache.mixer_pools import Paged, check_tree, refusal
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.recurrent_state import CONVOLUTION_SLOTS, rows_width

#: Rows are few whatever the context, so that nothing is gained by rounding them.
_TYPE = "float32"
PAGED = Paged("PagedCausalConv", operands=3)


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
        check_tree(nodes, "a convolution along the tokens", tree=tree)
        for node in nodes:
            if _channels(node) % 2:
                problem = "a convolution along the tokens has"
                problem += f" {_channels(node)} channels, an odd number"
                raise refusal(node, problem, "its pools have half of them each")
        return cls(nodes)

    @property
    def slots(self) -> int:
        """Slots of a block that hold such rows, alone; 0 where there are none."""
        return CONVOLUTION_SLOTS if self.nodes else 0

    def layers(self, group: int, slots: int) -> list[LayerKV]:
        """Shape and type of the pools of each, over so many ``slots`` of a block."""
        found = []
        for node in self.nodes:
            width = rows_width(_channels(node), node.attributes["kernel"].as_int(), slots)
            found.append(LayerKV(group, 1, width, width, _TYPE))
        return found


def _channels(node: ir.Node) -> int:
    return node.attributes["channels"].as_int()
