"""Attention over slots by operators of its own, where TensorRT's Attention lacks something."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import attributes_of, operand

#: Operands of the Slice that leaves out the first column.
_BEHIND_SINKS = {"start": 1, "end": 1 << 31, "axis": -1}


def is_spelled(node: ir.Node) -> bool:
    """True if TensorRT's Attention lacks something of an attention: softcap or sinks."""
    return bool(node.attributes.get_float("softcap", 0.0)) or operand(node, "sinks") is not None


def attended_by_scores(
    emit: Emitter,
    node: ir.Node,
    query: ir.Value,
    presents: list[ir.Value],
    mask: ir.Value,
    widths: list[int],
) -> ir.Value:
    """Scores, bent by tanh where there is a softcap, before the mask and the sinks; every query
    head beside the others of its KV head."""
    attributes = attributes_of(node)
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    group = heads // kv_heads
    keys, values = presents
    length = keys.shape[2] if keys.shape is not None else None
    if not isinstance(length, int):
        raise ValueError("a cache has no static length")
    grouped = emit.integers("grouped", [0, kv_heads, group, -1, widths[0]])
    rows = emit.op("q_grouped", "Reshape", [query, grouped], ["B", kv_heads, group, "S", widths[0]])
    dims: list[int | str] = ["B", kv_heads, widths[0], length]
    turned = emit.op("keys", "Transpose", [keys], dims, perm=[0, 1, 3, 2])
    axis = emit.integers("group_axis", [2])
    shared = emit.op("keys_shared", "Unsqueeze", [turned, axis], None)
    score: list[int | str] = ["B", kv_heads, group, "S", length]
    cap = float(attributes["softcap"])
    inner = emit.constant("inner", np.array(float(attributes["scale"]) / (cap or 1), np.float32))
    # the queries are scaled first, so that products stay small in half precision
    small = emit.op("q_small", "Mul", [rows, inner], None)
    product = emit.op("scores", "MatMul", [small, shared], score)
    if cap:
        bent = emit.op("bent", "Tanh", [product], score)
        outer = emit.constant("softcap", np.array(cap, np.float32))
        product = emit.op("capped", "Mul", [bent, outer], score)
    by_group = _by_group(emit, mask, kv_heads, group, length)
    masked = emit.op("masked", "Add", [product, by_group], score)
    sinks = operand(node, "sinks")
    if sinks is None:
        weights = emit.op("weights", "Softmax", [masked], score, axis=-1)
    else:
        weights = _with_sinks(emit, masked, sinks, (kv_heads, group, length))
    values_shared = emit.op("values_shared", "Unsqueeze", [values, axis], None)
    out = emit.op("weighed", "MatMul", [weights, values_shared], None)
    merged = emit.integers("by_head", [0, heads, -1, widths[1]])
    return emit.op("attend", "Reshape", [out, merged], ["B", heads, "S", widths[1]])


def _by_group(emit: Emitter, mask: ir.Value, kv_heads: int, group: int, length: int) -> ir.Value:
    """A mask [B, 1 or H, S, Smax] beside scores of five axes."""
    if mask.shape is not None and mask.shape[1] == 1:
        return emit.op("mask_shared", "Unsqueeze", [mask, emit.integers("mask_axis", [2])], None)
    split = emit.integers("mask_split", [0, kv_heads, group, -1, length])
    dims: list[int | str] = ["B", kv_heads, group, "S", length]
    return emit.op("mask_shared", "Reshape", [mask, split], dims)


def _with_sinks(
    emit: Emitter, masked: ir.Value, sinks: ir.Value, sizes: tuple[int, int, int]
) -> ir.Value:
    """Softmax with a column of sinks [H] in front, which goes away again."""
    kv_heads, group, length = sizes
    score: list[int | str] = ["B", kv_heads, group, "S"]
    lead = emit.op("score_lead", "Shape", [masked], [4], ir.DataType.INT64, start=0, end=4)
    one = emit.integers("one_column", [1])
    shape = emit.op("sink_shape", "Concat", [lead, one], [5], ir.DataType.INT64, axis=0)
    split = emit.integers("sink_split", [1, kv_heads, group, 1, 1])
    by_group = emit.op("sinks", "Reshape", [sinks, split], [1, kv_heads, group, 1, 1])
    column = emit.op("sink_column", "Expand", [by_group, shape], [*score, 1])
    wide: list[int | str] = [*score, length + 1]
    both = emit.op("with_sinks", "Concat", [column, masked], wide, axis=-1)
    weights = emit.op("all_weights", "Softmax", [both], wide, axis=-1)
    bounds = [emit.integers(f"sink_{name}", [at]) for name, at in _BEHIND_SINKS.items()]
    return emit.op("weights", "Slice", [weights, *bounds], [*score, length])
