"""Layer norms over each head, on values whose heads are folded.

Such a norm is ``optc::HeadRMSNorm`` of what is left when each head's mean is taken off, which two
products with fixed matrices do: one gives the means, the other repeats them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, constant
from optc.ir.linear import fixed_metadata
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    insert,
    miss,
    operand,
    producer,
    substitute,
)
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from optc.passes.canonicalize.spread_factors import spread_matrix

#: Metadata key of matrices that give the means of heads.
_MEAN = "optc.mean_heads"


def fold_layer_norm(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Let ``node``, LayerNormalization of heads with a scale [D], norm [B, S, H * D]."""
    x, scale = operand(node, 0), operand(node, 1)
    bias = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    heads = heads_of(x)
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    if heads is None or dims(scale) != [heads.size] or (given and bias is None):
        miss(report, node, f"not a norm of heads I know: its operand has shape {dims(x)}")
        return
    folded = fold(node, x, heads)
    lead = dims(folded)[:-1]
    means = emit(node, "MatMul", [folded, _mean(model.graph, heads)], x, None, [*lead, heads.count])
    wide = emit(node, "MatMul", [means, spread_matrix(model.graph, heads)], folded)
    centred = emit(node, "Sub", [folded, wide], folded)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    attributes = {"num_heads": heads.count, "epsilon": epsilon}
    normed = make_node(model, "HeadRMSNorm", [centred, scale], attributes)
    result = normed.outputs[0]
    result.shape = centred.shape
    insert(node, normed)
    if bias is not None:
        every = np.tile(np.asarray(bias.numpy(), np.float32), heads.count)
        name = f"{operand(node, 2).name}.heads"
        added = add_initializer(model.graph, ir.tensor(every, name=name), name)
        result = emit(node, "Add", [result, added], folded)
    substitute(node.outputs[0], split(node, result, heads))
    report.add("head layer norm")


def heads_of_mean(node: ir.Node) -> int:
    """The number of heads whose means ``node`` gives; 0 for any other node."""
    matrix = node.inputs[1] if is_op(node, "MatMul") else None
    known = matrix is not None and _MEAN in matrix.metadata_props
    count = dims(node.outputs[0])[-1] if known else 0
    return count if isinstance(count, int) else 0


def is_centred(value: ir.Value) -> bool:
    """True for heads without their means."""
    node = producer(value, "Sub")
    spread = None if node is None else producer(node.inputs[1], "MatMul")
    means = None if spread is None else producer(spread.inputs[0], "MatMul")
    return means is not None and bool(heads_of_mean(means))


def _mean(graph: ir.Graph, heads: Heads) -> ir.Value:
    """[H * D, H]: column h has 1 / D in the rows of head h."""
    name = f"mean_heads.{heads.count}x{heads.size}"
    known = graph.initializers.get(name)
    if known is not None:
        return known
    ones = np.repeat(np.eye(heads.count, dtype=np.float32), heads.size, axis=0)
    matrix = ir.tensor(ones / np.float32(heads.size), name=name)
    return add_initializer(graph, matrix, name, {**fixed_metadata(), _MEAN: "true"})
