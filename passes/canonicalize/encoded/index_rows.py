"""Rows of a table that are looked up by ``GatherND``, or once for all sequences."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant, constant_ints, int_initializer
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, emit, operand, producer, rank, substitute


def index_rows(graph: ir.Graph, report: PassReport) -> None:
    """``GatherND`` of a constant table [N, D] by indices [B, S, 1] becomes ``Gather`` by [B, S]."""
    for node in list(graph):
        batched = node.attributes.get_int("batch_dims", 0)
        if not is_op(node, "GatherND") or batched:
            continue
        table, column = constant(node.inputs[0]), producer(node.inputs[1], "Unsqueeze")
        if table is None or len(table.shape) != 2 or column is None:
            continue
        indices = _as_it_is(operand(column, 0))
        if rank(indices) != 2 or constant_ints(column.inputs[1]) not in ([-1], [2]):
            continue
        found = emit(node, "Gather", [node.inputs[0], indices], node.outputs[0], {"axis": 0})
        substitute(node.outputs[0], found)
        report.add("rows of a table")


def index_by_sequence(graph: ir.Graph, tokens: str) -> None:
    """``Gather`` of a constant table [N, D] by indices [S], whose rows are added to those of all
    sequences, is done by indices [1, S]."""
    for node in list(graph):
        table = constant(node.inputs[0]) if is_op(node, "Gather") else None
        if table is None or len(table.shape) != 2 or node.attributes.get_int("axis", 0) != 0:
            continue
        indices, found = operand(node, 1), node.outputs[0]
        readers = found.consumers()
        if dims(indices) != [tokens] or any(rank(one.outputs[0]) != 3 for one in readers):
            continue
        if not all(is_op(one, "Add", "Mul", "Sub", "Div") for one in readers):
            continue
        first = int_initializer(graph, [0], "first_axis")
        wide = emit(node, "Unsqueeze", [indices, first], indices, None, [1, tokens])
        shape = [1, *dims(found)]
        rows = emit(node, "Gather", [node.inputs[0], wide], found, {"axis": 0}, shape)
        substitute(found, rows)


def _as_it_is(value: ir.Value) -> ir.Value:
    """``value`` as it was before it was expanded to the shape that it has."""
    node = producer(value, "Expand")
    shape = None if node is None else producer(node.inputs[1], "Shape")
    if node is None or shape is None or dict(shape.attributes.items()).keys() - {"start"}:
        return value
    source, widest = operand(node, 0), operand(shape, 0)
    most = producer(widest, "Max")
    same = most.inputs[0] if most is not None and len(most.inputs) == 1 else widest
    return source if same is source and dims(source) else value
