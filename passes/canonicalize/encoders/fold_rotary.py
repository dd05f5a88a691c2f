"""Rotary embedding of values with an axis of heads works on heads in the last axis."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, emit, operand, rank, substitute
from optc.passes.canonicalize.heads import fold, heads_of, split


def fold_rotary(model: ir.Model, report: PassReport) -> None:
    """``RotaryEmbedding`` of [B, H, S, D] becomes one of [B, S, H * D], by tables [B, S, r / 2]."""
    for node in list(model.graph):
        if not is_op(node, "RotaryEmbedding") or rank(node.inputs[0]) != 4:
            continue
        x = operand(node, 0)
        heads = heads_of(x)
        positions = [v for v in node.inputs[3:] if v is not None]
        if heads is None or not heads.tokens_last or positions or rank(node.inputs[1]) != 3:
            continue
        half = dims(operand(node, 1))[-1]
        options = {
            "num_heads": heads.count,
            "rotary_embedding_dim": 2 * half if isinstance(half, int) else 0,
            "interleaved": node.attributes.get_int("interleaved", 0),
        }
        folded = fold(node, x, heads)
        turned = emit(node, "RotaryEmbedding", [folded, *node.inputs[1:3]], folded, options)
        substitute(node.outputs[0], split(node, turned, heads))
        report.add("rotary")
