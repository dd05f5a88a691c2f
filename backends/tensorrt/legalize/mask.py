"""Masks of attention over slots, as numbers that are added to scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import operand

#: What is added to the score of a token that a row must not see. Finite, so that no kernel meets
#: infinities, and far within float16.
MASKED = -30000.0
_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@dataclass(frozen=True)
class Mask:
    """The mask of a window and a chunk.

    Attributes:
        added: What is added to scores [B, 1, S, Smax].
        distance: How far each token lies behind each row, int64 [B, 1, S, Smax].
        length: Smax.
    """

    added: ir.Value
    distance: ir.Value
    length: int

    def of(self, emit: Emitter, node: ir.Node) -> ir.Value:
        """The term added to scores of one attention; where heads have slopes [B, H, S, Smax]."""
        slopes = operand(node, "alibi_slopes")
        if slopes is None:
            return self.added
        heads = node.attributes.get_int("num_heads", 0)
        axes = emit.integers("slope_axes", [0, 2, 3])
        column = emit.op("slopes", "Unsqueeze", [slopes, axes], [1, heads, 1, 1])
        one: list[int | str] = ["B", 1, "S", self.length]
        apart = emit.op("apart", "Cast", [self.distance], one, to=int(ir.DataType.FLOAT))
        behind = emit.op("behind", "Relu", [apart], one)  # what lies ahead stays hidden
        dims: list[int | str] = ["B", heads, "S", self.length]
        lost = emit.op("lost", "Mul", [column, behind], dims)
        return emit.op("leaning", "Sub", [self.added, lost], dims)


def make_mask(
    graph: ir.Graph,
    inputs: dict[str, ir.Value],
    kind: tuple[int, int],
    length: int,
    before: ir.Node,
) -> Mask:
    """The mask for a window and a chunk over slots of ``length`` tokens, in front of a node."""
    window, chunk = kind
    emit = Emitter(graph, _name(window, chunk))
    rows = emit.op("rows", "Shape", [inputs["tokens"]], [1], _INT64, start=1, end=2)
    count = emit.op("count", "Squeeze", [rows, emit.integers("axis", [0])], [], _INT64)
    zero, one = (emit.constant(str(n), np.array(n, np.int64)) for n in (0, 1))
    row = emit.op("row", "Range", [zero, count, one], ["S"], _INT64)
    column = emit.op("row_column", "Unsqueeze", [row, emit.integers("last", [1])], None, _INT64)
    axes = emit.integers("behind", [1, 2, 3])
    start = emit.op("start", "Unsqueeze", [inputs["write_indices"], axes], None, _INT64)
    place = emit.op("place", "Add", [start, column], ["B", 1, "S", 1], _INT64)
    keys = emit.constant("keys", np.arange(length, dtype=np.int64))
    dims: list[int | str] = ["B", 1, "S", length]
    seen = emit.op("seen", "LessOrEqual", [keys, place], dims, _BOOL)
    distance = emit.op("distance", "Sub", [place, keys], dims, _INT64)
    if window:
        width = emit.constant("window", np.array(window, np.int64))
        near = emit.op("near", "Less", [distance, width], dims, _BOOL)
        seen = emit.op("visible", "And", [seen, near], dims, _BOOL)
    if chunk:
        size = emit.constant("chunk", np.array(chunk, np.int64))
        of_row = emit.op("row_chunk", "Div", [place, size], ["B", 1, "S", 1], _INT64)
        of_key = emit.constant("key_chunk", np.arange(length, dtype=np.int64) // chunk)
        same = emit.op("same", "Equal", [of_row, of_key], dims, _BOOL)
        seen = emit.op("in_chunk", "And", [seen, same], dims, _BOOL)
    shown, hidden = (
        emit.constant(name, np.array(value, np.float32))
        for name, value in (("shown", 0.0), ("hidden", MASKED))
    )
    mask = emit.op("added", "Where", [seen, shown, hidden], dims)
    graph.insert_before(before, emit.nodes)
    return Mask(mask, distance, length)


def _name(window: int, chunk: int) -> str:
    parts = [*([str(window)] if window else []), *([f"chunk{chunk}"] if chunk else [])]
    return ".".join(["mask", *parts])
