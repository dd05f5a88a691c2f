"""`simplify`: constants are folded, batch norms go into convolutions, what nothing reads goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnxscript import rewriter
from onnxscript.rewriter.rules import common as rules

from optc.ir.exact_folding import fold_exactly
from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase

#: Exact but for the rounding of products of constants.
_BATCH_NORMS = (
    rules.fuse_batchnorm_into_conv_rule,
    rules.fuse_batchnorm_into_conv_transpose_rule,
    rules.fuse_batchnorm_into_gemm_rule,
)
#: Operators at which onnxscript's folding may end with an error.
_OF_SEQUENCES = ("SplitToSequence", "SequenceMap")


@dataclass(frozen=True)
class Simplify(Pass):
    """Nodes whose inputs are constants become constants, batch norms are folded into the products
    before them, shapes that are known are written down, and nodes that nothing reads go.

    Folding and rules are those of onnxscript, as far as they are exact.
    """

    name: ClassVar[str] = "simplify"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, before = PassReport(), _count(model)
        names = [str(value.name) for value in model.graph.outputs]
        norms = sum(node.op_type == "BatchNormalization" for node in model.graph)
        rewriter.RewriteRuleSet(_BATCH_NORMS).apply_to_model(model)
        folded = norms - sum(node.op_type == "BatchNormalization" for node in model.graph)
        if any(node.op_type in _OF_SEQUENCES for node in model.graph):
            report.skip(None, "it has sequences, which constant folding does not know")
        else:
            fold_exactly(model)
        for value, name in zip(model.graph.outputs, names, strict=True):
            value.name = name
        if folded:
            report.add("batch norms folded", folded)
        if (gone := before - _count(model) - folded) > 0:
            report.add("nodes gone", gone)
        return report


def _count(model: ir.Model) -> int:
    return sum(1 for _ in ir.traversal.RecursiveGraphIterator(model.graph))
