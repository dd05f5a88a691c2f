"""`fold-heads`: what splits heads off and folds them again is cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    operand,
    producer,
    rank,
    same_shape,
    scalar,
    substitute,
)
from optc.passes.canonicalize.spread_factors import spread_factor
from optc.passes.canonicalize.take_heads import heads_split, take_heads

_UNARY = ("Cast", "Neg", "Tanh", "Sigmoid", "Identity")
_BINARY = ("Mul", "Div", "Add", "Sub")


@dataclass(frozen=True)
class FoldHeads(Pass):
    """Values keep heads folded into their last axis.

    1. ``Transpose`` of a ``Transpose`` that undoes it -> nothing.
    2. ``Reshape`` back to the shape before a ``Reshape`` or to the shape it has -> nothing.
    3. An element-wise operator on split heads (scaling of q), or on two values that are split
       alike -> before the split.
    4. ``Gather`` of one head, ``Slice`` and ``Split`` of heads, of a split -> ``Slice`` of the last
       axis, and ``Squeeze`` of one head -> the value before the split: parts of layers that one
       projection or one table holds for all of them.
    5. A factor a token of each head, ``[B, S, H, 1]`` -> the same on folded heads, repeated by a
       product with a fixed matrix of ones and zeros.
    """

    name: ClassVar[str] = "fold-heads"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; one walk in graph order sees operands already rewritten."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "Transpose"):
                _cancel_transpose(node, report)
            elif is_op(node, "Reshape"):
                _cancel_reshape(node, report)
            elif is_op(node, "Mul", "Div") and spread_factor(model.graph, node, report):
                continue
            elif is_op(node, *_UNARY, *_BINARY):
                _move_up(node, report)
            elif is_op(node, "Gather", "Slice", "Split", "Squeeze"):
                take_heads(model.graph, node, report)
        remove_unused(model)
        return report


def _cancel_transpose(node: ir.Node, report: PassReport) -> None:
    """Legal case 1."""
    before = producer(node.inputs[0], "Transpose")
    if before is None:
        return
    first, second = (list(n.attributes["perm"].as_ints()) for n in (before, node))
    if [first[axis] for axis in second] == list(range(len(first))):
        substitute(node.outputs[0], operand(before, 0))
        report.add("transpose")


def _cancel_reshape(node: ir.Node, report: PassReport) -> None:
    """Legal case 2."""
    source = operand(node, 0)
    before = producer(source, "Reshape")
    if same_shape(source, node.outputs[0]):
        substitute(node.outputs[0], source)
    elif before is not None and same_shape(operand(before, 0), node.outputs[0]):
        substitute(node.outputs[0], operand(before, 0))
    else:
        return
    report.add("reshape")


def _move_up(node: ir.Node, report: PassReport) -> None:
    """Legal case 3."""
    position = next((i for i, v in enumerate(node.inputs) if rank(v) == 4), None)
    if position is None:
        return
    others = [v for i, v in enumerate(node.inputs) if i != position]
    if any(scalar(value) is None for value in others):
        _move_both_up(node, report)
        return
    value = operand(node, position)
    above = producer(value, "Transpose", "Reshape")
    chain: list[ir.Node] = []
    while above is not None and len(chain) < 2:
        chain.append(above)
        above = producer(above.inputs[0], "Reshape") if above.op_type == "Transpose" else None
    if not chain:
        return
    inputs = list(node.inputs)
    inputs[position] = operand(chain[-1], 0)
    result = emit(
        node,
        node.op_type,
        inputs,
        node.outputs[0],
        {name: attribute.value for name, attribute in node.attributes.items()},
        dims(operand(chain[-1], 0)),
    )
    for step in reversed(chain):
        attributes = {name: attribute.value for name, attribute in step.attributes.items()}
        result = emit(node, step.op_type, [result, *step.inputs[1:]], step.outputs[0], attributes)
    substitute(node.outputs[0], result)
    report.add("element-wise")


def _move_both_up(node: ir.Node, report: PassReport) -> None:
    """Legal case 3, of two values that are split alike."""
    splits = [producer(value, "Reshape") for value in node.inputs]
    before = [operand(split, 0) for split in splits if split is not None]
    if len(before) != 2 or any(heads_split(operand(node, i)) is None for i in (0, 1)):
        return
    if dims(operand(node, 0)) != dims(operand(node, 1)) or not same_shape(*before):
        return
    whole = emit(node, node.op_type, [*before], node.outputs[0], None, dims(before[0]))
    shape = operand(splits[0], 1) if splits[0] is not None else None
    result = emit(node, "Reshape", [whole, shape], node.outputs[0], None)
    substitute(node.outputs[0], result)
    report.add("element-wise")
