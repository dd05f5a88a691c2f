"""Compute what only the logits need for the wanted rows only."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import is_constant

#: Operators that read which sequence a row belongs to.
_OF_SEQUENCES = (
    *("PagedAttention", "PagedCrossAttention"),
    *("PagedCausalConv", "PagedLinearAttention"),
)


def gather_logit_rows(graph: ir.Graph, rows: ir.Value) -> None:
    """Gather ``rows`` [R] of the hidden states as early as their use allows.

    Outside attention and convolutions every operator works row by row (`token_rows`), so that all
    whose results end in the logits alone can run on the wanted rows: the head, the last norm, and
    of the last layer everything behind its attention. Gathered is what they read from the others:
    the attention's output and the residual stream.

    Raises:
        ValueError: The logits are not computed from hidden states.
    """
    narrowed = _narrowed(graph)
    if not narrowed:
        raise ValueError("the logits are not computed from hidden states by a matmul")
    picked: dict[ir.Value, ir.Value] = {}
    for node in [node for node in graph if node in narrowed]:
        for index, value in enumerate(node.inputs):
            if value is None or is_constant(value) or value.producer() in narrowed:
                continue
            if value not in picked:
                picked[value] = _gather_before(graph, node, value, rows)
            node.replace_input_with(index, picked[value])
        for value in node.outputs:
            value.shape = _with_rows(value.shape)


def _narrowed(graph: ir.Graph) -> set[ir.Node]:
    """The nodes whose results are used for the logits alone, attention and convolutions apart."""
    logits = graph.outputs[0]
    narrowed: set[ir.Node] = set()
    for node in reversed(graph):
        computed = [v for v in node.inputs if v is not None and not is_constant(v)]
        if not computed or is_op(node, *_OF_SEQUENCES, domain=DOMAIN):
            continue
        if is_op(node, "Gather") and any(v.is_graph_input() for v in computed):
            continue  # rows of hidden states are gathered, not tokens
        if all(_only_for(value, logits, narrowed) for value in node.outputs):
            narrowed.add(node)
    return narrowed


def _only_for(value: ir.Value, logits: ir.Value, nodes: set[ir.Node]) -> bool:
    """True if ``value`` is the logits, or used by ``nodes`` alone."""
    if value is logits:
        return True
    return not value.is_graph_output() and all(node in nodes for node in value.consumers())


def _gather_before(graph: ir.Graph, node: ir.Node, value: ir.Value, rows: ir.Value) -> ir.Value:
    attributes = ir.convenience.convert_attributes({"axis": 0})
    gather = ir.Node("", "Gather", [value, rows], attributes, num_outputs=1)
    picked = gather.outputs[0]
    picked.name, picked.type = f"{value.name}.wanted", value.type
    picked.shape = _with_rows(value.shape)
    graph.insert_before(node, [gather])
    return picked


def _with_rows(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape(["R", *list(shape)[1:]])
