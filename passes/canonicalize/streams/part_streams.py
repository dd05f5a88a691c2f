"""`part-streams`: streams that are stacked along an axis are values of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, rank, substitute
from optc.passes.canonicalize.streams.parts import Partition
from optc.passes.canonicalize.streams.rules import RULES


@dataclass(frozen=True)
class PartStreams(Pass):
    """A value [B, S, N] that is made of stacked ones, [n, B, S, N] or with the axis elsewhere, is
    made of what was stacked (AltUp, arXiv 2301.13310).

    What lies between, backwards from where streams leave the stack (one is taken, they are summed
    or put behind one another) to where they were stacked, is done for each stream: element-wise
    operators, layers, norms, mixtures by a matrix of each token, whose numbers are slices of a
    value [B, S, n * n]. Where anything else lies between, nothing changes.
    """

    name: ClassVar[str] = "part-streams"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; the count is of the values that leave a stack."""
        report, graph = PassReport(), model.graph
        lead, nodes = dims(graph.inputs[0])[:2], list(graph)
        if len(lead) < 2 or not nodes:
            return report
        partition = Partition(graph, lead, RULES, nodes[0])
        for node in nodes:
            if not _leaves(node):
                continue
            partition.before = node
            parts = partition.made(node, ())
            if parts is not None and parts.stacked:
                value: ir.Value = parts.grid.item()
                substitute(node.outputs[0], value)
                report.add("value")
        remove_unused(model)
        return report


def _leaves(node: ir.Node) -> bool:
    """True if a value of three axes is made of one of four."""
    return rank(node.outputs[0]) == 3 and any(rank(value) == 4 for value in node.inputs)
