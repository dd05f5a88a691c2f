"""`fold-weights`: arithmetic on weights becomes part of reading them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.stacked_weights import stacked
from optc.ir.weights import Array, LazyWeight, as_lazy, rows_from, rows_of_columns
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    miss,
    operand,
    orders,
    producer,
    rank,
    scalar,
    substitute,
    uses,
)

_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
_UNARY: dict[str, Callable[[Array], Array]] = {"Exp": np.exp, "Neg": np.negative}


@dataclass(frozen=True)
class FoldWeights(Pass):
    """Weights reach their operator as they are read from the checkpoint.

    1. ``Gemm`` over rows -> ``MatMul`` (+ ``Add`` of the bias).
    2. ``Transpose`` of a 2-D weight -> the weight seen the other way round.
    3. ``Cast`` to float32, ``Add Sub Mul Div`` of a weight and a constant scalar
       (``1 + weight`` of a norm), and ``Exp Neg`` (rates of decay) -> applied to the rows as they
       are read.
    4. ``Gather`` of a weight's rows at indices + a constant -> of the rows from the constant on;
       indices may be put in other axes between.
    5. A ``MatMul`` by a weight that is stored [K, N] -> its rows are read by output channel.
    6. ``Reshape`` of a weight [E * N, K] to a stack [E, N, K] -> its rows are read by matrix;
       of a vector [D] to [1, 1, D], for arithmetic with [B, S, D] -> the vector.
    """

    name: ClassVar[str] = "fold-weights"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "Gemm"):
                _split_gemm(model.graph, node, report)
        for node in list(model.graph):
            if is_op(node, "Transpose"):
                _fold_transpose(model.graph, node, report)
            elif is_op(node, "Reshape"):
                _fold_stack(model.graph, node, report)
            elif is_op(node, *_UNARY):
                _fold_unary(model.graph, node, report)
            elif is_op(node, "Cast", *_ARITHMETIC):
                _fold_arithmetic(model.graph, node, report)
            elif is_op(node, "Gather"):
                _fold_offset(model.graph, node, report)
        for node in model.graph:
            if is_op(node, "MatMul"):
                _turn_weight(node, report)
        remove_unused(model)
        return report


def weight_of(value: ir.Value | None) -> LazyWeight | None:
    """The weight behind an initializer, unless it is a plain constant."""
    tensor = None if value is None else value.const_value
    return tensor if isinstance(tensor, LazyWeight) else None


def _split_gemm(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 1: alpha = beta = 1, the left operand not transposed."""
    x, weight = operand(node, 0), operand(node, 1)
    factors = {node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")}
    if factors != {1.0} or node.attributes.get_int("transA", 0) != 0:
        miss(report, node, "a Gemm with alpha, beta or transA is not a linear layer I know")
        return
    if node.attributes.get_int("transB", 0) != 0:
        shape = dims(weight)[::-1]
        weight = emit(node, "Transpose", [weight], weight, {"perm": [1, 0]}, shape)
    result = emit(node, "MatMul", [x, weight], node.outputs[0])
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = emit(node, "Add", [result, node.inputs[2]], node.outputs[0])
    substitute(node.outputs[0], result)
    graph.remove(node, safe=True)
    report.add("gemm")


def _fold_transpose(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 2. Small constants that are no weights were folded before."""
    source = operand(node, 0)
    tensor = source.const_value
    if tensor is None or rank(source) != 2:
        return
    weight = tensor if isinstance(tensor, LazyWeight) else as_lazy(tensor)
    _replace(graph, node, weight.transpose(), ".transposed")
    report.add("transpose")


def _fold_stack(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 6."""
    if _is_vector(node):
        substitute(node.outputs[0], operand(node, 0))
        report.add("vector")
        return
    weight, shape = _table(operand(node, 0)), dims(node.outputs[0])
    sizes = [size for size in shape if isinstance(size, int)]
    if weight is None or weight.transposed or len(sizes) != 3:
        return
    rows, width = weight.rows_shape
    if sizes[0] < 2 or len(shape) != 3 or sizes[1:] != [rows // sizes[0], width]:
        return
    _replace(graph, node, stacked(weight, sizes[0]), ".stacked")
    report.add("stack")


def _is_vector(node: ir.Node) -> bool:
    """True for a ``Reshape`` that puts axes of size 1 before a vector, which those that read it do
    not need: they have other operands of as many axes."""
    shape = dims(node.outputs[0])
    if weight_of(node.inputs[0]) is None or rank(operand(node, 0)) != 1 or set(shape[:-1]) != {1}:
        return False
    return all(
        is_op(reader, *_ARITHMETIC)
        and any(
            value is not node.outputs[0] and value is not None and len(dims(value)) >= len(shape)
            for value in reader.inputs
        )
        for reader in uses(node.outputs[0])
    )


def _fold_unary(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 3."""
    weight = weight_of(node.inputs[0])
    if weight is not None:
        folded = weight.map_rows(_UNARY[node.op_type], weight.dtype)
        _replace(graph, node, folded, f".{node.op_type.lower()}")
        report.add("arithmetic")


def _fold_arithmetic(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 3."""
    if node.op_type == "Cast":
        weight = weight_of(node.inputs[0])
        if weight is not None and node.attributes.get_int("to", 0) == weight.dtype:
            substitute(node.outputs[0], operand(node, 0))
            report.add("cast")
        return
    function = _ARITHMETIC[node.op_type]
    left, right = (weight_of(value) for value in node.inputs)
    first, second = (scalar(v) if weight_of(v) is None else None for v in node.inputs)
    if left is not None and second is not None:
        number = np.asarray(second, np.float32)
        folded = left.map_rows(lambda rows: function(rows, number), left.dtype)
    elif right is not None and first is not None:
        number = np.asarray(first, np.float32)
        folded = right.map_rows(lambda rows: function(number, rows), right.dtype)
    else:
        return
    _replace(graph, node, folded, ".folded")
    report.add("arithmetic")


def _fold_offset(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Legal case 4; learned positions begin behind rows that stand for something else."""
    table = operand(node, 0)
    weight = _table(table)
    reshapes, add = _behind_reshapes(operand(node, 1))
    axis = node.attributes.get_int("axis", 0)
    if weight is None or weight.transposed or add is None or axis != 0:
        return
    for indices, other in orders(add):
        offset = scalar(other)
        if offset is None or not 0 < offset < weight.rows_shape[0]:
            continue
        rows = rows_from(weight, int(offset))
        value = add_initializer(graph, rows, f"{table.name}.from_{int(offset)}")
        for reshape in reversed(reshapes):
            zeros = {"allowzero": reshape.attributes.get_int("allowzero", 0)}
            given: list[ir.Value | None] = [indices, operand(reshape, 1)]
            indices = emit(node, "Reshape", given, reshape.outputs[0], zeros)
        node.replace_input_with(0, value)
        node.replace_input_with(1, indices)
        report.add("offset")
        return


def _table(value: ir.Value) -> LazyWeight | None:
    """A table of rows: a weight, or a constant that the model's class computes."""
    tensor = value.const_value
    if tensor is None or rank(value) != 2:
        return None
    return tensor if isinstance(tensor, LazyWeight) else as_lazy(tensor)


def _behind_reshapes(indices: ir.Value) -> tuple[list[ir.Node], ir.Node | None]:
    """The reshapes that ``indices`` went through, the last first, and the ``Add`` before them."""
    reshapes = []
    while (reshape := producer(indices, "Reshape")) is not None:
        reshapes.append(reshape)
        indices = operand(reshape, 0)
    return reshapes, producer(indices, "Add")


def _turn_weight(node: ir.Node, report: PassReport) -> None:
    """Legal case 5."""
    value = operand(node, 1)
    weight = weight_of(value)
    if weight is None or weight.transposed or rank(value) != 2:
        return
    if all(is_op(reader, "MatMul") for reader in value.consumers()):
        value.const_value = rows_of_columns(weight)
        report.add("by output channel")


def _replace(graph: ir.Graph, node: ir.Node, weight: LazyWeight, suffix: str) -> None:
    """Put ``weight`` in the place of ``node``; it takes over the name if that becomes free."""
    source = next(
        v
        for v in node.inputs
        if v is not None and v.const_value is not None and v.const_value.name == weight.name
    )
    name = str(source.name)
    result = add_initializer(graph, weight, name + suffix)
    substitute(node.outputs[0], result)
    graph.remove(node, safe=True)
    if not source.uses():
        del graph.initializers[name]
        result.name = name
