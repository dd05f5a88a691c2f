"""`fold-head-constants`: constants of heads act on values whose heads are folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, emit, operand, producer, substitute
from optc.passes.canonicalize.heads import Heads, split
from optc.passes.canonicalize.take_heads import heads_split


@dataclass(frozen=True)
class FoldHeadConstants(Pass):
    """``Add Sub Mul Div`` of split heads [B, S, H, D] and a constant of each head, or of each
    dimension of each, [H, 1] or [H, D] -> of [B, S, H * D] and a vector.

    Scales of a head norm that differ from head to head are such a product behind it.
    """

    name: ClassVar[str] = "fold-head-constants"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "Add", "Sub", "Mul", "Div"):
                _fold(model.graph, node, report)
        remove_unused(model)
        return report


def _fold(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    for place in (0, 1):
        found = heads_split(operand(node, place))
        if found is None:
            continue
        (x, heads), other = found, operand(node, 1 - place)
        vector = _by_head(other, heads)
        if vector is None:
            continue
        value = add_initializer(graph, ir.tensor(vector), f"{_root(other).name}.heads")
        inputs: list[ir.Value | None] = [x, value] if place == 0 else [value, x]
        result = emit(node, node.op_type, inputs, x)
        substitute(node.outputs[0], split(node, result, heads))
        report.add("constant of heads")
        return


def _by_head(value: ir.Value, heads: Heads) -> npt.NDArray[np.float32] | None:
    """The vector [H * D] of a constant that broadcasts along heads; None if it is none, or is the
    same for all heads."""
    shape = dims(value)
    sizes = [1] * (4 - len(shape)) + [size if isinstance(size, int) else 0 for size in shape]
    alike = sizes[:2] == [1, 1] and sizes[2:] in ([heads.count, 1], [heads.count, heads.size])
    tensor = constant(_root(value)) if alike and heads.count > 1 else None
    if tensor is None or tensor.dtype != ir.DataType.FLOAT:
        return None
    array = np.asarray(tensor.numpy(), np.float32).reshape(sizes[2:])
    return np.ascontiguousarray(np.broadcast_to(array, (heads.count, heads.size))).reshape(-1)


def _root(value: ir.Value) -> ir.Value:
    """The value that ``value`` was before axes were added or left out."""
    while (node := producer(value, "Unsqueeze", "Reshape", "Squeeze", "Identity")) is not None:
        value = operand(node, 0)
    return value
