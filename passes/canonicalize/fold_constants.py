"""`fold-constants`: everything that is known at compile time, but no weight, is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    InlinePass,
    LiftConstantsToInitializersPass,
)
from onnxscript.optimizer import fold_constants_ir

from optc.ir.functions import DOMAIN
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight

#: Elements of an operand or result up to which a node is folded.
_LIMIT = 1024


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Inline the exporter's functions, infer shapes, fold constants, merge equal nodes.

    Nodes that read a `LazyWeight` are never folded: weights stay on disk (shape inference looks
    at values of 20 elements at most).
    """

    name: ClassVar[str] = "fold-constants"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; the count is by how many nodes the graph shrank."""
        report = PassReport()
        nodes = model.graph.num_nodes()
        InlinePass(criteria=lambda function: function.domain != DOMAIN)(model)
        fold_constants_ir(
            model,
            onnx_shape_inference=True,
            input_size_limit=_LIMIT,
            output_size_limit=_LIMIT,
            should_fold=_may_fold,
        )
        CommonSubexpressionEliminationPass()(model)
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        remove_unused(model)
        report.add("nodes", max(0, nodes - model.graph.num_nodes()))
        return report


def _may_fold(node: ir.Node) -> bool | None:
    """False keeps the node; None leaves the decision to the usual rules."""
    lazy = any(v is not None and isinstance(v.const_value, LazyWeight) for v in node.inputs)
    return False if lazy else None
