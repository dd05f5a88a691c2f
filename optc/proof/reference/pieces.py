"""Pieces of a cut model that both the reference and the speed baseline run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.weights import as_lazy
from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.submodel import Array, extract, open_session, run_session, weight_array


def evaluate_shared(
    model: ir.Model, parts: Partition, positions: Array, threads: int
) -> dict[str, Array]:
    """Values that all blocks read (cos and sin) by name, for positions i64 [B, S]."""
    if not parts.shared:
        return {}
    source = model.graph.inputs[1]
    part = extract(model, parts.position_nodes, [source], parts.shared)
    feeds = part.feeds() | {source.name or "": positions}
    results = run_session(open_session(part.model, threads), feeds)
    return {v.name or "": array for v, array in zip(parts.shared, results, strict=True)}


def block_inputs(block: Block, parts: Partition) -> list[ir.Value]:
    """The inputs of a block: its source, and those of the shared values that it reads."""
    read = {id(v) for node in block.nodes for v in node.inputs if v is not None}
    return [block.source, *(v for v in parts.shared if id(v) in read)]


class HeadTail:
    """The head's MatMul and what follows it, for a tile of the vocabulary at a time.

    Args:
        model: The model.
        parts: Its pieces.
        by_rows: Take a tile's weight as rows [n, D] and transpose it in the graph, which ONNX
            Runtime fuses into the MatMul; else as columns [D, n].

    Attributes:
        model: (hidden [1, R, D], weight, values per entry) -> logits [1, R, n].
        hidden: Name of the input for hidden states.
        logits: Name of the output.
        weight: Name of the input for the tile's weight.
        vocab_size: V.
    """

    def __init__(self, model: ir.Model, parts: Partition, *, by_rows: bool) -> None:
        hidden, weight = parts.head.inputs[:2]
        if hidden is None or weight is None or weight.const_value is None:
            raise ValueError("the head lacks an operand")
        self._rows = as_lazy(weight.const_value, transposed=True)
        self._by_rows = by_rows
        self.weight = weight.name or ""
        self.vocab_size = self._rows.rows_shape[0]
        per_entry = _per_entry_values(parts, self.vocab_size)
        logits = model.graph.outputs[0]
        nodes = [parts.head, *parts.tail_nodes]
        part = extract(model, nodes, [hidden, weight, *per_entry], [logits])
        _forget_shapes(part.model.graph)
        if by_rows:
            _take_rows(part.model.graph)
        self.model = part.model
        self.hidden = hidden.name or ""
        self.logits = logits.name or ""
        self._per_entry = {v.name or "": weight_array(v, by_rows=False) for v in per_entry}

    def feeds(self, start: int, stop: int) -> dict[str, Array]:
        """Weight and values per entry of the vocabulary entries start … stop - 1, float32."""
        rows = self._rows.read_rows(start, stop).astype(np.float32, copy=False)
        weight = np.ascontiguousarray(rows if self._by_rows else rows.T)
        slices = {n: np.ascontiguousarray(a[..., start:stop]) for n, a in self._per_entry.items()}
        return {self.weight: weight, **slices}


def _per_entry_values(parts: Partition, vocab_size: int) -> list[ir.Value]:
    """Initializers of the tail that hold a number per vocabulary entry (a bias)."""
    operands = {id(v): v for n in parts.tail_nodes for v in n.inputs if v is not None}
    return [v for v in operands.values() if v.is_initializer() and _last_size(v) == vocab_size]


def _last_size(value: ir.Value) -> int:
    shape = value.const_value.shape.numpy() if value.const_value is not None else ()
    return int(shape[-1]) if shape else 1


def _forget_shapes(graph: ir.Graph) -> None:
    """The graph's vocabulary is now a tile's width."""
    for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
        value.shape = None


def _take_rows(graph: ir.Graph) -> None:
    """Let the weight, the graph's second input, be rows."""
    head, weight = graph[0], graph.inputs[1]
    transpose = ir.node("Transpose", [weight], {"perm": [1, 0]})
    graph.insert_before(head, transpose)
    head.replace_input_with(1, transpose.outputs[0])
