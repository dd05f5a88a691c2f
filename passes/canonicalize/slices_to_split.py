"""`slices-to-split`: slices that share out the last axis of a value become one ``Split``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, insert, last_axis_range, substitute, uses


@dataclass(frozen=True)
class SlicesToSplit(Pass):
    """The ``Slice``s of one value along its last axis, where they cover it without overlap.

    Fused projections (q, k and v in one matmul) are exported in this way.
    """

    name: ClassVar[str] = "slices-to-split"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        sources = dict.fromkeys(n.inputs[0] for n in model.graph if is_op(n, "Slice"))
        for source in sources:
            parts = _parts(source) if source is not None else []
            if source is not None and parts:
                _split(model.graph, source, parts)
                report.add("split")
        remove_unused(model)
        return report


def _parts(source: ir.Value) -> list[tuple[int, int, ir.Value]]:
    """(start, stop, value) of the slices in order, if there are several and they fit together."""
    found = []
    for node in uses(source):
        taken = last_axis_range(node.outputs[0]) if is_op(node, "Slice") else None
        if taken is not None and taken[0] is source:
            found.append((taken[1], taken[2], node.outputs[0]))
    found.sort(key=lambda part: part[:2])
    edges = [0, *(stop for _, stop, _ in found)]
    fits = [start for start, _, _ in found] == edges[:-1] and edges[-1] == dims(source)[-1]
    return found if fits and len(found) > 1 else []


def _split(graph: ir.Graph, source: ir.Value, parts: list[tuple[int, int, ir.Value]]) -> None:
    sizes = [stop - start for start, stop, _ in parts]
    outputs = [ir.Value(type=value.type, shape=value.shape) for _, _, value in parts]
    sizes_value = int_initializer(graph, sizes, f"{source.name}.sizes")
    split = ir.Node(
        "",
        "Split",
        [source, sizes_value],
        ir.convenience.convert_attributes({"axis": -1}),
        outputs=outputs,
    )
    slices = {value.producer() for _, _, value in parts}
    insert(next(node for node in graph if node in slices), split)
    for (_, _, old), new in zip(parts, outputs, strict=True):
        substitute(old, new)
