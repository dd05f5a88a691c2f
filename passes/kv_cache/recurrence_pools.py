"""Pools of the states of linear attention: a KV group whose blocks hold the state behind the last
of their tokens."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.passes.kv_cache.mixer_pools import Paged, check_tree, refusal
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.recurrent_state import state_slots, state_width

#: Errors of a state go on to all tokens behind.
_TYPE = "float32"
#: A row goes on from the state behind the token before it.
WINDOW = 2
PAGED = Paged("PagedLinearAttention", operands=6)


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
        check_tree(nodes, "a recurrence", tree=tree)
        for node in nodes:
            if not state_slots(*_sizes(node)):
                problem = (
                    f"a state of {' by '.join(map(str, _sizes(node)))} has no place in a block"
                )
                raise refusal(node, problem, "multiples of 16 have one")
        return cls(nodes)

    @property
    def slots(self) -> int:
        """Slots of a block that hold states; 0 where there are none."""
        return max((state_slots(*_sizes(node)) for node in self.nodes), default=0)

    def layers(self, group: int) -> list[LayerKV]:
        """Shape and type of the pools of each, in the KV ``group``."""
        found = []
        for node in self.nodes:
            width = state_width(*_sizes(node))
            heads = node.attributes["num_heads"].as_int()
            found.append(LayerKV(group, heads, width, width, _TYPE))
        return found


def _sizes(node: ir.Node) -> tuple[int, int]:
    return node.attributes["key_dim"].as_int(), node.attributes["value_dim"].as_int()
