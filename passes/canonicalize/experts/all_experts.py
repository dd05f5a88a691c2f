"""Layers in which every row goes through all experts: their nodes, and what they give of zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints
from optc.passes.canonicalize.dataflow import axis_of, dims, operand, rank, scalar, uses
from optc.passes.canonicalize.experts.factors import FAILURES

_ELEMENT_WISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Neg", "Abs", "Sqrt", "Exp", "Log", "Erf"),
    *("Tanh", "Sigmoid", "Gelu", "Relu", "Softplus", "Clip", "Cast", "Identity", "Swish", "Where"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Reciprocal"),
)


class ForeignExpertsError(Exception):
    """Why a layer is not one of all experts; the message is the reason."""


@dataclass(frozen=True)
class AllExperts:
    """A layer from rows of all experts [E, T, K] to the sum of what these make of them [T, N].

    Attributes:
        given: [E, T, K].
        nodes: Those between, in the graph's order; matmuls are by stacks [E, K, N].
        total: The ReduceSum over the experts.
    """

    given: ir.Value
    nodes: tuple[ir.Node, ...]
    total: ir.Node

    @property
    def count(self) -> int:
        """E."""
        return int(dims(self.given)[0] or 0)


def is_stacked_matmul(node: ir.Node) -> bool:
    """True for a MatMul of [E, T, K] by a constant [E, K, N]."""
    if not is_op(node, "MatMul") or rank(node.inputs[0]) != 3 or rank(node.inputs[1]) != 3:
        return False
    weight, first = operand(node, 1), dims(operand(node, 0))[0]
    return weight.const_value is not None and isinstance(first, int) and dims(weight)[0] == first


def layer_of(graph: ir.Graph, given: ir.Value) -> AllExperts:
    """The layer whose rows are ``given``, which matmuls by stacks read.

    Raises:
        ForeignExpertsError: Something else is made of them, or experts make something of zeros.
    """
    inside: set[ir.Node] = set()
    total: ir.Node | None = None
    stack, seen = uses(given), {given}
    while stack:
        node = stack.pop()
        if node in inside or node is total:
            continue
        if _sums_experts(node):
            if total is not None:
                raise ForeignExpertsError("its experts' results are summed twice")
            total = node
            continue
        inside.add(node)
        seen.update(node.outputs)
        if any(value.is_graph_output() for value in node.outputs):
            raise ForeignExpertsError("a result of all experts is an output")
        stack += [reader for value in node.outputs for reader in uses(value)]
    if total is None:
        raise ForeignExpertsError("its experts' results are not summed")
    layer = AllExperts(given, tuple(node for node in graph if node in inside), total)
    _check(layer, seen)
    return layer


def _sums_experts(node: ir.Node) -> bool:
    return (
        is_op(node, "ReduceSum")
        and rank(node.inputs[0]) == 3
        and constant_ints(node.inputs[1]) in ([0], [-3])
        and not node.attributes.get_int("keepdims", 1)
    )


def _check(layer: AllExperts, inside: set[ir.Value]) -> None:
    """Raises:
    ForeignExpertsError: A node is not by rows of one expert, or of zeros something comes out.
    """
    zeros: dict[ir.Value, float] = {layer.given: 0.0}
    for node in layer.nodes:
        others = [v for v in node.inputs if v is not None and v not in inside]
        if is_stacked_matmul(node) and operand(node, 0) in inside:
            if zeros[operand(node, 0)]:
                raise ForeignExpertsError(f"{node.name} is given something where rows are zero")
            result = 0.0
        elif is_op(node, *_ELEMENT_WISE):
            if any(scalar(value) is None for value in others):
                raise ForeignExpertsError(f"{node.name} reads more than its expert's rows")
            result = _of_numbers(node, zeros)
        elif _keeps_rows(layer, node):
            result = zeros[operand(node, 0)]
        else:
            raise ForeignExpertsError(f"{node.name} ({node.op_type}) mixes rows or experts")
        zeros.update(dict.fromkeys(node.outputs, result))
    if zeros[operand(layer.total, 0)]:
        raise ForeignExpertsError("experts make something of rows that are zero")


def _keeps_rows(layer: AllExperts, node: ir.Node) -> bool:
    """True if ``node`` takes columns, or has experts and rows in one axis or in two."""
    x, result = operand(node, 0), node.outputs[0]
    if is_op(node, "Split"):
        return axis_of(node, x, 0) == (rank(x) or 0) - 1
    if is_op(node, "Slice"):
        axes = constant_ints(node.inputs[3]) if len(node.inputs) > 3 else None
        return axes in ([-1], [(rank(x) or 0) - 1])
    if not is_op(node, "Reshape") or dims(x)[-1:] != dims(result)[-1:]:
        return False
    return rank(result) == 2 or (rank(result) == 3 and dims(result)[0] == layer.count)


def _of_numbers(node: ir.Node, known: dict[ir.Value, float]) -> float:
    """The result of an element-wise ``node`` for numbers.

    Raises:
        ForeignExpertsError: It cannot be computed, or is no number.
    """
    names = [f"x{index}" if value is not None else "" for index, value in enumerate(node.inputs)]
    given = {
        name: known.get(value, scalar(value))
        for name, value in zip(names, node.inputs, strict=True)
        if value is not None
    }
    kinds = [v.dtype or ir.DataType.FLOAT if v is not None else None for v in node.inputs]
    inputs = [
        ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape([])) if kind else None
        for name, kind in zip(names, kinds, strict=True)
    ]
    copy = ir.Node("", node.op_type, inputs, [*node.attributes.values()], num_outputs=1)
    copy.outputs[0].name = "y"
    copy.outputs[0].type = ir.TensorType(node.outputs[0].dtype or ir.DataType.FLOAT)
    graph = ir.Graph(
        [v for v in inputs if v is not None], copy.outputs, nodes=[copy], opset_imports={"": 23}
    )
    feeds = {
        str(v.name): np.array(given[str(v.name)], v.dtype.numpy() if v.dtype else np.float32)
        for v in graph.inputs
    }
    try:
        (result,) = ReferenceEvaluator(ir.to_proto(ir.Model(graph, ir_version=10))).run(None, feeds)
    except FAILURES as error:
        raise ForeignExpertsError(f"{node.name} cannot be computed: {error}") from error
    if not np.isfinite(result):
        raise ForeignExpertsError(f"{node.name} gives no number where rows are zero")
    return float(result)
