"""The axis of tokens of an encoder whose sequences have one length gets a name."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import int_initializer, is_constant
from optc.passes.canonicalize.dataflow import dims, operand


def name_tokens(graph: ir.Graph, batch: str, tokens: int, name: str) -> None:
    """Call the axes of ``tokens`` values ``name``, as of texts.

    Of [batch, …] it is the first axis of that size; scores [batch, heads, tokens, tokens] have two.
    Targets of ``Reshape`` copy such axes, so that inference of shapes gives the same.
    """
    for node in graph:
        for value in node.outputs:
            shape = dims(value)
            if len(shape) < 3 or shape[0] != batch or is_constant(value):
                continue
            axes = [axis for axis, size in enumerate(shape) if size == tokens and axis]
            scores = len(shape) == 4 and axes == [2, 3]
            for axis in axes if scores else axes[:1]:
                shape[axis] = name
            value.shape = ir.Shape(shape)
        if is_op(node, "Reshape"):
            _copy_axes(graph, node)


def _copy_axes(graph: ir.Graph, node: ir.Node) -> None:
    before, after = dims(operand(node, 0)), dims(node.outputs[0])
    target = [
        size if isinstance(size, int) else 0 if before[axis : axis + 1] == [size] else -1
        for axis, size in enumerate(after)
    ]
    if after and target.count(-1) <= 1:
        node.replace_input_with(1, int_initializer(graph, target, f"{node.name}.axes"))
        node.attributes.pop("allowzero", None)
