"""Some of the heads of a split value: columns of what was split."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints, int_initializer
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import axis_of, dims, emit, operand, producer, substitute
from optc.passes.canonicalize.heads import Heads, heads_of, split

_AXIS = 2  # of heads in [B, S, heads, size]


def heads_split(value: ir.Value) -> tuple[ir.Value, Heads] | None:
    """(x [B, S, n * d], heads) if a ``Reshape`` makes ``value`` [B, S, n, d] of x."""
    node = producer(value, "Reshape")
    heads = heads_of(value)
    if node is None or heads is None or heads.tokens_last:
        return None
    x = operand(node, 0)
    whole = [*dims(value)[:2], heads.count * heads.size]
    return (x, heads) if None not in whole and dims(x) == whole else None


def take_heads(graph: ir.Graph, node: ir.Node, report: PassReport) -> None:
    """Let ``node``, which takes some of the heads of a split value, take columns instead."""
    found = heads_split(operand(node, 0))
    if found is None:
        return
    x, heads = found
    if is_op(node, "Squeeze"):
        axes = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
        if heads.count == 1 and axes is not None and axes in ([_AXIS], [_AXIS - 4]):
            substitute(node.outputs[0], x)
            report.add("one head")
        return
    for index, (first, count, apart) in enumerate(_taken(node, heads)):
        columns = _columns(graph, node, x, first * heads.size, (first + count) * heads.size)
        kept = Heads(count, heads.size, tokens_last=False)
        substitute(node.outputs[index], split(node, columns, kept) if apart else columns)
        report.add("some heads")


def _taken(node: ir.Node, heads: Heads) -> list[tuple[int, int, bool]]:
    """(first head, how many, whether they keep their axis) of each output; none where the node
    does anything else."""
    value = operand(node, 0)
    if is_op(node, "Slice"):
        given = [v for ints in node.inputs[1:] for v in constant_ints(ints) or ()]
        if len(given) not in (3, 4) or given[3:] not in ([], [1]) or given[2] not in (2, -2):
            return []
        first, last, _ = slice(given[0], given[1]).indices(heads.count)
        return [(first, last - first, True)] if last > first else []
    if axis_of(node, value, 0) != _AXIS:
        return []
    if is_op(node, "Gather"):
        index = constant_ints(node.inputs[1])
        if index is None or len(index) != 1 or len(dims(node.outputs[0])) != 3:
            return []
        return [(index[0] % heads.count, 1, False)]
    counts = [dims(output)[_AXIS] for output in node.outputs if len(dims(output)) == 4]
    if len(counts) != len(node.outputs):
        return []
    known = [count for count in counts if isinstance(count, int)]
    starts = [sum(known[:index]) for index in range(len(known))]
    ends = len(known) == len(counts) and sum(known) == heads.count
    return [(a, n, True) for a, n in zip(starts, known, strict=True)] if ends else []


def _columns(graph: ir.Graph, before: ir.Node, x: ir.Value, first: int, last: int) -> ir.Value:
    """x[..., first:last]."""
    bounds = {"first": [first], "last": [last], "axis": [-1]}
    inputs = [int_initializer(graph, value, f"heads_{name}") for name, value in bounds.items()]
    return emit(before, "Slice", [x, *inputs], x, None, [*dims(x)[:-1], last - first])
