"""A pass that shows the form of one: it changes the graph, and no figure of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport


@dataclass(frozen=True)
class SwapAdds(Pass):
    """The operands of an Add change places.

    Attributes:
        most: How many; others are left alone.
    """

    name: ClassVar[str] = "acme-swap-adds"
    expected: ClassVar[bool] = True
    most: int = 8

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in model.graph:
            if not is_op(node, "Add"):
                continue
            if report.count == self.most:
                report.skip(node, f"{self.most} are swapped")
                continue
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
            report.add("adds")
        return report


#: What the entry point `optc.passes` gives.
PASSES = (SwapAdds,)
