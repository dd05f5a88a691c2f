"""`fold-tokens`: values of all tokens in one axis, [B*S, D], get back their axes [B, S, D]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import constant, constant_ints, int_initializer, is_constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    insert,
    miss,
    operand,
    producer,
    rank,
    substitute,
)

#: Operators that take any number of leading axes as they are; those of two operands broadcast.
ANY_RANK = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Neg", "Abs", "Sqrt", "Reciprocal"),
        *("Exp", "Log", "Erf", "Floor", "Tanh", "Sigmoid", "Gelu", "Relu", "Softplus", "Clip"),
        *("Cast", "Identity", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Where", "Swish"),
        *("LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Mish", "MatMul", "Sign", "Not"),
    }
)
#: Operators over one axis, and the axis that they take where they state none.
_ONE_AXIS = {
    **dict.fromkeys(("Softmax", "TopK", "RMSNormalization", "LayerNormalization"), -1),
    **dict.fromkeys(("Split", "Concat", "GatherElements"), 0),
}
#: Operators that state their axes, one, as their second operand.
_REDUCTIONS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax"})
Unfolded = dict[ir.Value, ir.Value]


@dataclass(frozen=True)
class FoldTokens(Pass):
    """``Reshape [B, S, D] -> [B*S, D]``, operators over the last axis, ``Reshape`` back.

    1. Such a ``Reshape`` falls away: its readers read [B, S, D].
    2. Element-wise operators, ``MatMul`` and operators over the last axis work on [B, S, D], axis
       -1; so do those of our own and what they make of tokens, as [B*S, k, N] of k experts.
    3. A ``Reshape`` of [B*S, N] to [B, S, N] falls away; one to more axes reads [B, S, N].
    4. Rows of a table that are looked up by [B*S] indices, made of [B, S], are [B, S, D].
    5. [B, S, D] as one head, [B, 1, S, D], is [B, S, D] likewise: latents of keys and values.
    Operators that do anything else keep reading [B*S, D].
    """

    name: ClassVar[str] = "fold-tokens"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place; the count is of the reshapes of case 3."""
        report = PassReport()
        unfolded: Unfolded = {}
        for node in list(model.graph):
            source = _flattened(node)
            if is_op(node, "Gather") and _unfold_lookup(node, unfolded):
                continue
            if source is not None:
                unfolded[node.outputs[0]] = source
            elif any(value in unfolded for value in node.inputs if value is not None):
                _unfold(model.graph, node, unfolded, report)
        remove_unused(model)
        return report


def _flattened(node: ir.Node) -> ir.Value | None:
    """The value [B, S, D] that ``node`` makes [B*S, D] of, or [B, 1, S, D]."""
    if not is_op(node, "Reshape", "Unsqueeze"):
        return None
    source, result = operand(node, 0), node.outputs[0]
    whole, flat = dims(source), dims(result)
    if len(whole) != 3 or not isinstance(whole[2], int):
        return None
    tokens = any(not isinstance(size, int) for size in whole[:2])
    one_head = None not in whole and flat == [whole[0], 1, *whole[1:]]
    in_one_axis = len(flat) == 2 and flat[1] == whole[2]
    return source if tokens and (one_head or in_one_axis) else None


def _unfold(graph: ir.Graph, node: ir.Node, unfolded: Unfolded, report: PassReport) -> None:
    """Cases 2 and 3."""
    if is_op(node, "Reshape"):
        _unfold_reshape(node, unfolded, report)
        return
    changes = _changes(graph, node)
    flat = next(v for v in node.inputs if v in unfolded)
    lead = dims(unfolded[flat])[:2]
    folded = (rank(flat) or 0) - (rank(unfolded[flat]) or 0) + 2  # axes that tokens had
    if changes is None or not _others_fit(node, unfolded):
        if folded == 1:  # angles are often given an axis of heads, and nothing is amiss
            miss(report, node, f"{node.op_type} of all tokens in one axis is not of the last axis")
        return
    attributes, inputs = changes
    inputs = [unfolded.get(v, v) if v is not None else None for v in inputs]
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        attributes,
        overload=node.overload,
        num_outputs=len(node.outputs),
        name=node.name,
    )
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.type, new.shape = old.type, ir.Shape([*lead, *dims(old)[folded:]])
        unfolded[old] = new
    insert(node, copy)


def _unfold_lookup(node: ir.Node, unfolded: Unfolded) -> bool:
    """Case 4; whether it is one."""
    table, index = operand(node, 0), operand(node, 1)
    flat = rank(index) == 1 and rank(table) == 2 and is_constant(table)
    while flat and rank(index) == 1 and (before := producer(index, "Reshape")) is not None:
        index = operand(before, 0)
    if not flat or rank(index) != 2 or node.attributes.get_int("axis", 0) != 0:
        return False
    if all(isinstance(size, int) for size in dims(index)):
        return False
    result, shape = node.outputs[0], [*dims(index), dims(table)[1]]
    unfolded[result] = emit(node, "Gather", [table, index], result, {"axis": 0}, shape)
    return True


def _changes(graph: ir.Graph, node: ir.Node) -> tuple[list[ir.Attr], list[ir.Value | None]] | None:
    """Attributes and operands of ``node`` over one more axis; None if it is not of the last."""
    attributes, inputs = list(node.attributes.values()), list(node.inputs)
    last = ((rank(node.inputs[0]) or 2) - 1, -1)
    axes = [[axis] for axis in last]
    if node.domain:  # ours work on rows, however they lie
        ours = node.domain == DOMAIN and node.op_type != "Attention"
        return (attributes, inputs) if ours else None
    if node.op_type in ANY_RANK:
        return attributes, inputs
    if node.op_type in _ONE_AXIS:
        if node.attributes.get_int("axis", _ONE_AXIS[node.op_type]) not in last:
            return None
        kept = [attribute for attribute in attributes if attribute.name != "axis"]
        return [*kept, ir.AttrInt64("axis", -1)], inputs
    if node.op_type in _REDUCTIONS and constant_ints(node.inputs[1]) in axes:
        return attributes, [inputs[0], int_initializer(graph, [-1], "last_axis")]
    if node.op_type == "Slice" and len(inputs) > 3 and constant_ints(inputs[3]) in axes:
        return attributes, [*inputs[:3], int_initializer(graph, [-1], "last_axis"), *inputs[4:]]
    return None


def _others_fit(node: ir.Node, unfolded: Unfolded) -> bool:
    """True if the other operands are constants that broadcast along the last axis, or a weight.

    Results have as many axes as what they are made of, but those of operators of ours.
    """
    for index, value in enumerate(node.inputs):
        if value is None or value in unfolded:
            continue
        if is_op(node, "MatMul"):
            return index == 1 and rank(value) == 2 and value.const_value is not None
        if constant(value) is None:
            return False
        broadcasts = (rank(value) or 0) < 2 or (rank(value) == 2 and dims(value)[0] == 1)
        if not (broadcasts or node.domain):
            return False
    ranks = {rank(value) for value in node.inputs if value in unfolded}
    return bool(node.domain) or all(rank(value) in ranks for value in node.outputs)


def _unfold_reshape(node: ir.Node, unfolded: Unfolded, report: PassReport) -> None:
    """Case 3."""
    source, result = unfolded[operand(node, 0)], node.outputs[0]
    whole, wanted = dims(source), dims(result)
    if len(wanted) == 3 and wanted[2] == whole[2]:
        substitute(result, source)
        report.add("reshape")
    elif len(wanted) > 3 and not any(isinstance(size, int) for size in wanted[:2]):
        node.replace_input_with(0, source)
        report.add("reshape")
