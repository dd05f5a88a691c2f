"""`find-norms`: spelled-out RMS and layer norms become one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, constant_ints, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    insert,
    miss,
    operand,
    orders,
    producer,
    rank,
    scalar,
    substitute,
    uses,
)
from optc.passes.canonicalize.head_layer_norms import fold_layer_norm
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split


@dataclass(frozen=True)
class FindNorms(Pass):
    """Norms of the last axis, with their scale.

    1. ``x * rsqrt(mean(x * x) + epsilon) * scale`` -> ``RMSNormalization``; without a scale it
       gets one of ones. The root may be a power of -0.5.
    2. The same of ``x - mean(x)`` -> ``LayerNormalization``.
    3. ``RMSNormalization`` of [B, S, H, D] or [B, H, S, D] -> ``optc::HeadRMSNorm``.
    4. ``LayerNormalization`` of these -> the same of heads without their means.
    """

    name: ClassVar[str] = "find-norms"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "Mul", "Div"):
                _find_rms(model.graph, node, report)
        for node in list(model.graph):
            if is_op(node, "RMSNormalization"):
                _find_layer_norm(node, report)
        for node in list(model.graph):
            if is_op(node, "RMSNormalization") and rank(node.inputs[0]) == 4:
                _find_head_norm(model, node, report)
            elif is_op(node, "LayerNormalization") and rank(node.inputs[0]) == 4:
                fold_layer_norm(model, node, report)
        remove_unused(model)
        return report


def _find_rms(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 1; ``node`` multiplies x by the root's reciprocal."""
    for x, factor in orders(node) if node.op_type == "Mul" else [_both(node)]:
        under = _under_root(node, factor)
        total = producer(under, "Add")
        if total is None:
            continue
        found = _mean_of_squares(total)
        if found is None or found[0] is not x:
            miss(report, node, "not an RMS norm I know: the root is not of mean(x * x) + epsilon")
            return
        _emit_rms(graph, node, x, found[1])
        report.add("rms")
        return


def _under_root(node: ir.Node, factor: ir.Value) -> ir.Value | None:
    """The value whose root's reciprocal ``node`` multiplies by."""
    power = producer(factor, "Pow") if node.op_type == "Mul" else None
    if power is not None:
        return power.inputs[0] if scalar(power.inputs[1]) == -0.5 else None
    root = producer(factor, "Reciprocal") if node.op_type == "Mul" else node
    sqrt = producer(root.inputs[-1], "Sqrt") if root is not None else None
    return sqrt.inputs[0] if sqrt is not None else None


def _both(node: ir.Node) -> tuple[ir.Value, ir.Value]:
    return operand(node, 0), operand(node, 1)


def _mean_of_squares(total: ir.Node) -> tuple[ir.Value, float] | None:
    """(x, epsilon) of mean(x * x, last axis) + epsilon."""
    for mean, epsilon in orders(total):
        number = scalar(epsilon)
        reduce = producer(mean, "ReduceMean")
        if number is None or reduce is None or not _over_last_axis(reduce):
            continue
        square = producer(reduce.inputs[0], "Pow", "Mul")
        if square is None:
            continue
        x, second = _both(square)
        if second is x if square.op_type == "Mul" else scalar(second) == 2.0:
            return x, number
    return None


def _over_last_axis(reduce: ir.Node) -> bool:
    axes = constant_ints(reduce.inputs[1]) if len(reduce.inputs) > 1 else None
    size = rank(reduce.inputs[0])
    return axes is not None and axes in ([-1], [(size or 0) - 1])


def _emit_rms(graph: ir.Graph, node: ir.Node, x: ir.Value, epsilon: float) -> None:
    last = node
    scale = None
    readers = uses(node.outputs[0])
    if len(readers) == 1 and is_op(readers[0], "Mul"):
        for normed, factor in orders(readers[0]):
            if normed is node.outputs[0] and _is_scale(factor, x):
                last, scale = readers[0], factor
    if scale is None:
        width = dims(x)[-1]
        ones = ir.tensor(np.ones(int(width or 0), np.float32))
        scale = add_initializer(graph, ones, f"{node.name}.ones")
    result = emit(last, "RMSNormalization", [x, scale], x, {"axis": -1, "epsilon": epsilon})
    substitute(last.outputs[0], result)


def _is_scale(value: ir.Value, x: ir.Value) -> bool:
    return value.const_value is not None and dims(value) == dims(x)[-1:]


def _find_layer_norm(node: ir.Node, report: PassReport) -> None:
    """Legal case 2; a bias stays a following Add."""
    centred = producer(node.inputs[0], "Sub")
    mean = producer(centred.inputs[1], "ReduceMean") if centred is not None else None
    if centred is None or mean is None or mean.inputs[0] is not centred.inputs[0]:
        return
    if not _over_last_axis(mean):
        miss(report, node, "not a layer norm I know: the mean is not over the last axis")
        return
    options = {"axis": -1, "epsilon": node.attributes["epsilon"].as_float()}
    inputs: list[ir.Value | None] = [centred.inputs[0], node.inputs[1]]
    substitute(node.outputs[0], emit(node, "LayerNormalization", inputs, node.outputs[0], options))
    report.add("layer norm")


def _find_head_norm(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Legal case 3."""
    x, scale = _both(node)
    heads = heads_of(x)
    if heads is None:
        miss(report, node, f"not a norm of heads I know: its operand has shape {dims(x)}")
        return
    folded = fold(node, x, heads)
    epsilon = node.attributes["epsilon"].as_float()
    substitute(node.outputs[0], _head_norm(model, node, folded, scale, heads, epsilon))
    report.add("head norm")


def _head_norm(
    model: ir.Model, node: ir.Node, x: ir.Value, scale: ir.Value, heads: Heads, epsilon: float
) -> ir.Value:
    attributes = {"num_heads": heads.count, "epsilon": epsilon}
    normed = make_node(model, "HeadRMSNorm", [x, scale], attributes)
    normed.outputs[0].shape = x.shape
    insert(node, normed)
    return split(node, normed.outputs[0], heads)
