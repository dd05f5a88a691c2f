"""Masks of the standard Attention and tables of RotaryEmbedding, as ONNX Runtime's kernels for the
CPU want them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op

#: Positions of inputs of the standard operator Attention.
_QUERIES, _MASK = 0, 3
#: And of RotaryEmbedding: cos and sin, and the positions that they are looked up by.
_TABLES, _POSITIONS = (1, 2), 3


def expand_masks(model: ir.Model) -> int:
    """Give masks of one row a row for each query.

    The standard says that a mask is broadcast; ONNX Runtime's kernel wants as many rows as there
    are queries.

    Returns:
        How many masks were expanded.
    """
    count = 0
    for node in list(model.graph):
        if not is_op(node, "Attention") or len(node.inputs) <= _MASK:
            continue
        queries, mask = node.inputs[_QUERIES], node.inputs[_MASK]
        if queries is None or mask is None or mask.shape is None or len(mask.shape) < 2:
            continue
        if mask.shape[-2] != 1:
            continue
        rank = len(mask.shape)
        rows = ir.node("Shape", [queries], {"start": -2, "end": -1})
        shape = [_constant([1] * (rank - 2)), rows.outputs[0], _constant([1])]
        given = [one for one in shape if one is not None]
        whole = ir.node("Concat", given, {"axis": 0})
        wide = ir.node("Expand", [mask, whole.outputs[0]], name=f"{node.name}.mask")
        made = [one.producer() for one in given if one.producer() is not rows]
        model.graph.insert_before(node, [*(m for m in made if m), rows, whole, wide])
        node.replace_input_with(_MASK, wide.outputs[0])
        count += 1
    return count


def expand_tables(model: ir.Model) -> int:
    """Give tables [1, tokens, r / 2] that all sequences share an entry for each sequence.

    Exporters leave them to be broadcast; ONNX Runtime's kernel wants [batch, tokens, r / 2].

    Returns:
        How many were expanded.
    """
    count = 0
    for node in list(model.graph):
        if not is_op(node, "RotaryEmbedding") or any(
            v is not None for v in node.inputs[_POSITIONS:]
        ):
            continue
        for index in _TABLES:
            table = node.inputs[index]
            if table is None or table.shape is None or len(table.shape) != 3 or table.shape[0] != 1:
                continue
            batch = ir.node("Shape", [node.inputs[_QUERIES]], {"start": 0, "end": 1})
            ones = ir.node("Constant", [], {"value": ir.tensor(np.array([1, 1], np.int64))})
            whole = ir.node("Concat", [batch.outputs[0], ones.outputs[0]], {"axis": 0})
            wide = ir.node("Expand", [table, whole.outputs[0]], name=f"{node.name}.table_{index}")
            model.graph.insert_before(node, [batch, ones, whole, wide])
            node.replace_input_with(index, wide.outputs[0])
            count += 1
    return count


def _constant(sizes: list[int]) -> ir.Value | None:
    if not sizes:
        return None
    tensor = ir.tensor(np.array(sizes, np.int64))
    return ir.node("Constant", [], {"value": tensor}).outputs[0]
