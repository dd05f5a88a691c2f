"""Compute logits for the wanted rows only: gather them before the last norm."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import is_constant


def gather_logit_rows(graph: ir.Graph, rows: ir.Value) -> None:
    """Gather ``rows`` [R] of the hidden states as early as the walk back from the logits allows.

    The walk passes nodes with one computed operand (head, softcap) and ends in front of the last
    norm, or behind the first node with several operands if there is no last norm.
    """
    start, consumers = graph.outputs[0], []
    while True:
        node = start.producer()
        if node is None:
            break
        operands = [v for v in node.inputs if v is not None and not is_constant(v)]
        if len(operands) != 1 or node.domain == DOMAIN:
            break
        consumers.append(node)
        start = operands[0]
        if is_op(node, "RMSNormalization", "LayerNormalization"):
            break
    gather = ir.Node(
        "", "Gather", [start, rows], ir.convenience.convert_attributes({"axis": 0}), num_outputs=1
    )
    picked = gather.outputs[0]
    picked.name, picked.type = f"{start.name}.wanted", start.type
    picked.shape = _with_rows(start.shape)
    if not consumers:
        raise ValueError("the logits are not computed from hidden states by a matmul")
    graph.insert_before(consumers[-1], [gather])
    consumers[-1].replace_input_with(list(consumers[-1].inputs).index(start), picked)
    for node in consumers:
        node.outputs[0].shape = _with_rows(node.outputs[0].shape)


def _with_rows(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape(["R", *list(shape)[1:]])
