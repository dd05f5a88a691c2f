"""`tensorrt-names`: a name of its own for every node, which the layer table refers to."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport

#: What would break the lines of the layer table.
_ODD = re.compile(r"[^\w.+/:-]")


@dataclass(frozen=True)
class UniqueNames(Pass):
    """Nodes without a name get their output's; equal ones a number."""

    name: ClassVar[str] = "tensorrt-names"
    after: ClassVar[tuple[str, ...]] = ("tensorrt-inline",)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rename nodes of ``model`` in place."""
        report = PassReport()
        taken: set[str] = set()
        for node in model.graph.all_nodes():
            base = _ODD.sub("_", node.name or f"{node.outputs[0].name}.{node.op_type}")
            name = base
            for number in itertools.count(2):
                if name not in taken:
                    break
                name = f"{base}.{number}"
            taken.add(name)
            if name != node.name:
                node.name = name
                report.add("renamed")
        return report
