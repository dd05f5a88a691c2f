"""Pieces of a cut model that both the reference and the speed baseline run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.weights import as_lazy
from optc.proof.reference.execution.part import open_part
from optc.proof.reference.partition import Block, Partition
from optc.proof.reference.submodel import Array, weight_array
from optc.runtime.executable.executable import Float32


def evaluate_shared(
    model: ir.Model, parts: Partition, positions: Array, threads: int
) -> dict[str, Array]:
    """Values that all blocks read (cos and sin) by name, for positions i64 [B, S]."""
    if not parts.shared:
        return {}
    source = model.graph.inputs[1]
    part = open_part(model, parts.position_nodes, [source], parts.shared, threads)
    results = part.run([positions])
    return {v.name or "": array for v, array in zip(parts.shared, results, strict=True)}


def block_inputs(block: Block, parts: Partition) -> list[ir.Value]:
    """The inputs of a block: what it is given, and those of the shared values that it reads."""
    read = {id(v) for node in block.nodes for v in node.inputs if v is not None}
    return [*block.given, *(v for v in parts.shared if id(v) in read)]


class HeadPieces:
    """The operands of the head's MatMul and of what follows it, by tiles of the vocabulary.

    Args:
        model: The model.
        parts: Its pieces.

    Attributes:
        nodes: The head, and those after it.
        inputs: hidden [1, R, D], the weight, and values per entry.
        logits: The result, [1, R, n].
        vocab_size: V.
    """

    def __init__(self, model: ir.Model, parts: Partition) -> None:
        hidden, weight = parts.head.inputs[:2]
        if hidden is None or weight is None or weight.const_value is None:
            raise ValueError("the head lacks an operand")
        self._rows = as_lazy(weight.const_value, transposed=True)
        self.vocab_size = self._rows.rows_shape[0]
        per_entry = _per_entry_values(parts, self.vocab_size)
        self._per_entry = [weight_array(value) for value in per_entry]
        self.nodes = [parts.head, *parts.tail_nodes]
        self.inputs = [hidden, weight, *per_entry]
        self.logits = model.graph.outputs[0]

    def tile(self, start: int, stop: int) -> tuple[Float32, list[Array]]:
        """The weight's rows [n, D] and values per entry of the vocabulary's entries start … stop -
        1, float32."""
        rows = self._rows.read_rows(start, stop).astype(np.float32, copy=False)
        others = [np.ascontiguousarray(array[..., start:stop]) for array in self._per_entry]
        return np.ascontiguousarray(rows), others


def _per_entry_values(parts: Partition, vocab_size: int) -> list[ir.Value]:
    """Initializers of the tail that hold a number per vocabulary entry (a bias)."""
    operands = {id(v): v for n in parts.tail_nodes for v in n.inputs if v is not None}
    return [v for v in operands.values() if v.is_initializer() and _last_size(v) == vocab_size]


def _last_size(value: ir.Value) -> int:
    shape = value.const_value.shape.numpy() if value.const_value is not None else ()
    return int(shape[-1]) if shape else 1
