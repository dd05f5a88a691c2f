"""Scores of attentions, probed once for each way in which graphs spell them."""

from __future__ import annotations

import onnx_ir as ir

from optc.passes.canonicalize.dataflow import rank
from optc.passes.canonicalize.spelled.probe import Probe, Scores
from optc.passes.canonicalize.spelled.region import Region, region_of


class Probed:
    """Probes regions of one graph; equal ones once.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._known: dict[object, Scores] = {}

    def scores(
        self, result: ir.Value, products: ir.Value | None, heads: int, *, causal: bool = False
    ) -> Scores:
        """The effect of a region from ``products`` to ``result``; a mask, where there are none.
        ``causal``: rows see none of what lies behind them besides.

        Raises:
            ForeignError: It is no attention of ours.
        """
        region = region_of(self._graph, result, products)
        key = (heads, rank(products), causal, _spelling(region, products))
        if key not in self._known:
            merged = products is not None and rank(products) == 3
            probe = Probe(self._graph, region, heads, products, merged, causal)
            self._known[key] = probe.scores()
        return self._known[key]


def _spelling(region: Region, products: ir.Value | None) -> object:
    """Equal for regions that compute the same of the same constants."""
    numbers: dict[ir.Value, object] = {} if products is None else {products: "products"}
    for node in region.nodes:
        operands = tuple(None if v is None else numbers.get(v, id(v)) for v in node.inputs)
        attributes = tuple(sorted((k, str(a.value)) for k, a in node.attributes.items()))
        for index, value in enumerate(node.outputs):
            numbers[value] = hash((node.op_type, attributes, operands, index))
    return numbers.get(region.result, id(region.result))
