"""Factors of heads, computed for each token, on values whose heads are folded."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.graph import add_initializer
from optc.ir.linear import fixed_metadata
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, emit, operand, orders, producer, substitute
from optc.passes.canonicalize.heads import Heads, split
from optc.passes.canonicalize.take_heads import heads_split

_NAME = "spread_heads"


def spread_factor(graph: ir.Graph, node: ir.Node, report: PassReport) -> bool:
    """Let ``node``, heads [B, S, H, D] times a factor of each [B, S, H, 1], multiply [B, S, H * D];
    whether it is such a product. The factors are repeated by a product with ones and zeros."""
    pairs = orders(node) if node.op_type == "Mul" else [(operand(node, 0), operand(node, 1))]
    for value, other in pairs:
        found, factors = heads_split(value), _of_heads(other)
        if found is None or factors is None:
            continue
        x, heads = found
        if dims(factors) != [*dims(x)[:2], heads.count]:
            continue
        wide = emit(node, "MatMul", [factors, spread_matrix(graph, heads)], x)
        result = emit(node, node.op_type, [x, wide], x)
        substitute(node.outputs[0], split(node, result, heads))
        report.add("factor of each head")
        return True
    return False


def _of_heads(value: ir.Value) -> ir.Value | None:
    """The value [B, S, H] that ``value`` [B, S, H, 1] is."""
    node = producer(value, "Unsqueeze", "Reshape")
    if node is None or len(dims(value)) != 4 or None in dims(value):
        return None
    source = operand(node, 0)
    return source if [*dims(source), 1] == dims(value) else None


def spread_matrix(graph: ir.Graph, heads: Heads) -> ir.Value:
    """[H, H * D]: row h is one in the columns of head h."""
    name = f"{_NAME}.{heads.count}x{heads.size}"
    known = graph.initializers.get(name)
    if known is not None:
        return known
    matrix = np.repeat(np.eye(heads.count, dtype=np.float32), heads.size, axis=1)
    return add_initializer(graph, ir.tensor(matrix, name=name), name, fixed_metadata())
