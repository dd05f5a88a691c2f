"""`fold-constants`: everything that is known at compile time, but no weight, is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    InlinePass,
    LiftConstantsToInitializersPass,
)
from onnxscript.optimizer import fold_constants_ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import add_initializer, constant, constant_ints, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.dataflow import dims, operand, producer, rank

#: Elements of an operand or result up to which a node is folded.
_LIMIT = 1024


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Inline the exporter's functions, infer shapes, fold constants, merge equal nodes.

    Nodes that read a `LazyWeight` are never folded: weights stay on disk (shape inference looks
    at values of 20 elements at most). A number that is repeated for every channel is folded however
    many channels there are, and so is one size that is known of a shape that is not.
    """

    name: ClassVar[str] = "fold-constants"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; the count is by how many nodes the graph shrank."""
        report = PassReport()
        nodes = model.graph.num_nodes()
        InlinePass(criteria=lambda function: function.domain != DOMAIN)(model)
        _fold(model)
        if _fold_sizes(model.graph):
            _fold(model)
        _fold_repeated(model.graph)
        CommonSubexpressionEliminationPass()(model)
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        remove_unused(model)
        report.add("nodes", max(0, nodes - model.graph.num_nodes()))
        return report


def _fold(model: ir.Model) -> None:
    fold_constants_ir(
        model,
        onnx_shape_inference=True,
        input_size_limit=_LIMIT,
        output_size_limit=_LIMIT,
        should_fold=_may_fold,
    )


def _fold_sizes(graph: ir.Graph) -> int:
    """Make one size that is known, of a shape that is not known as a whole, a constant."""
    found = 0
    for node in graph:
        shape = producer(node.inputs[0], "Shape") if is_op(node, "Gather") else None
        index = constant_ints(node.inputs[1]) if shape is not None else None
        if shape is None or index is None or len(index) != 1 or rank(node.outputs[0]) != 0:
            continue
        first = shape.attributes.get_int("start", 0)
        size = dims(operand(shape, 0))[first:][index[0]]
        if first >= 0 and isinstance(size, int):
            folded = add_initializer(
                graph, ir.tensor(np.array(size)), f"{node.outputs[0].name}.size"
            )
            node.outputs[0].replace_all_uses_with(folded)
            found += 1
    return found


def _may_fold(node: ir.Node) -> bool | None:
    """False keeps the node; None leaves the decision to the usual rules."""
    lazy = any(v is not None and isinstance(v.const_value, LazyWeight) for v in node.inputs)
    return False if lazy else None


def _fold_repeated(graph: ir.Graph) -> None:
    """Make vectors of one number constants, as the biases of zeros that an exporter gives
    convolutions without one are."""
    for node in graph:
        if node.op_type != "Expand" or node.domain:
            continue
        number, shape = constant(node.inputs[0]), constant_ints(node.inputs[1])
        if number is None or isinstance(number, LazyWeight) or number.size != 1:
            continue
        if shape is not None and len(shape) == 1 and len(number.shape) <= 1:
            values = np.full(shape, number.numpy().reshape(()))
            folded = add_initializer(graph, ir.tensor(values), f"{node.outputs[0].name}.repeated")
            node.outputs[0].replace_all_uses_with(folded)
