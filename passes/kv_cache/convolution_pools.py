"""Pools of the rows that convolutions along the tokens read: a KV group with a window of a few
tokens, so that everything that holds for keys and values holds for these rows."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.passes.kv_cache.mixer_pools import Paged, check_tree, refusal
from optc.runtime.executable.executable import LayerKV

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


def _channels(node: ir.Node) -> int:
    return node.attributes["channels"].as_int()
