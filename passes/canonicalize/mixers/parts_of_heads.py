"""`parts-of-heads`: some numbers of every head of a projection are columns of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, last_axis_range, miss, substitute
from optc.passes.canonicalize.heads import Heads, split
from optc.passes.canonicalize.probing.columns import take_columns
from optc.passes.canonicalize.probing.evaluate import Unreadable
from optc.passes.canonicalize.take_heads import heads_split


@dataclass(frozen=True)
class PartsOfHeads(Pass):
    """``Split`` or ``Slice`` of the last axis of split heads [B, S, n, d] -> the same of columns,
    whose heads are split off behind it.

    One projection gives queries and their gates, or the queries, keys and values of each head, side
    by side. Each part becomes a projection of its own rows.
    """

    name: ClassVar[str] = "parts-of-heads"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; parts are counted."""
        report = PassReport()
        for node in list(model.graph):
            if not is_op(node, "Split", "Slice") or node.inputs[0] is None:
                continue
            found = heads_split(node.inputs[0])
            if found is None:
                continue
            for index, output in enumerate(node.outputs):
                taken = last_axis_range(output) if output.uses() else None
                if taken is None or len(dims(output)) != 4:
                    continue
                x, heads = found
                first, last = taken[1:]
                columns = np.arange(heads.count * heads.size).reshape(heads.count, heads.size)
                wanted = columns[:, first:last].reshape(-1)
                try:
                    part = take_columns(model, node, x, wanted, f"part{index}")
                except Unreadable as error:
                    miss(report, node, f"a part of every head: {error}")
                    continue
                kept = Heads(heads.count, last - first, tokens_last=False)
                substitute(output, split(node, part, kept))
                report.add("part")
        remove_unused(model)
        return report
