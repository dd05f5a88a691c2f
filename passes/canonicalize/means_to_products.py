"""`means-to-products`: means and sums over the last axis are products with a fixed column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, constant_ints, remove_unused
from optc.ir.linear import fixed_metadata
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, emit, operand, substitute, uses

_NAME = "mean_column"


@dataclass(frozen=True)
class MeansToProducts(Pass):
    """``ReduceMean`` or ``ReduceSum`` of the last axis of [B, S, N] -> ``MatMul`` by a fixed column
    [N, 1] of 1/N or of ones, whose result is [B, S, 1].

    One that keeps no axis is followed by what gives it back, which falls away. Norms are found
    before: what is left are thresholds and magnitudes that a model computes itself.
    """

    name: ClassVar[str] = "means-to-products"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "ReduceMean", "ReduceSum") and _rewrite(model.graph, node):
                report.add("mean" if node.op_type == "ReduceMean" else "sum")
        remove_unused(model)
        return report


def _rewrite(graph: ir.Graph, node: ir.Node) -> bool:
    """True if ``node`` is one, and was replaced."""
    x, result = operand(node, 0), node.outputs[0]
    *lead, width = dims(x) or [None]
    axes = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
    tokens = len(lead) == 2 and not any(isinstance(size, int) for size in lead)
    if not tokens or axes not in ([2], [-1]) or not isinstance(width, int):
        return False
    number = 1 / width if node.op_type == "ReduceMean" else 1.0
    column = _column(graph, width, number)
    if node.attributes.get_int("keepdims", 1):
        substitute(result, emit(node, "MatMul", [x, column], x, None, [*lead, 1]))
        return True
    wanted = [
        _given_back(reader, [*lead, 1]) for reader in uses(result) if reader.op_type != "Shape"
    ]
    found = [given for given in wanted if given is not None]
    if result.is_graph_output() or not found or len(found) < len(wanted):
        return False
    value = emit(node, "MatMul", [x, column], x, None, [*lead, 1])
    for given in found:
        substitute(given, value)
    return True


def _given_back(node: ir.Node, shape: list[int | str | None]) -> ir.Value | None:
    """The value [B, S, 1] that is made of [B, S] by ``node`` and what follows it. As it has as many
    numbers, nothing is repeated."""
    while is_op(node, "Unsqueeze", "Reshape", "Expand"):
        result = node.outputs[0]
        if dims(result) == shape:
            return result
        readers = uses(result)
        if len(readers) != 1 or readers[0].inputs[0] is not result:
            return None
        node = readers[0]
    return None


def _column(graph: ir.Graph, width: int, number: float) -> ir.Value:
    name = f"{_NAME}.{width}" if number != 1 else f"sum_column.{width}"
    known = graph.initializers.get(name)
    if known is not None:
        return known
    values = np.full((width, 1), number, dtype=np.float32)
    return add_initializer(graph, ir.tensor(values, name=name), name, fixed_metadata())
