"""The part of a model's size that a choice of formats does not change."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import width
from optc.ir.linear import head_of
from optc.ir.pipeline.base import Pass
from optc.ir.weights import LazyWeight
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.quantize.budget.amounts import Footprint
from optc.passes.quantize.budget.groups import Group
from optc.passes.quantize.layer_schemes import PER_CHANNEL, stored_bits
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.roofline.estimate import CONTEXT
from optc.runtime.executable.executable import LayerKV


def footprint(
    model: ir.Model, groups: Sequence[Group], quantize: QuantizeWeights, later: Sequence[Pass]
) -> Footprint:
    """The size of a dense form beside the weights of ``groups``.

    Args:
        model: Dense form.
        groups: Those that are chosen for.
        quantize: Says what becomes of embeddings.
        later: May have a ``kv-cache``, which says what keys and values are kept in.
    """
    chosen = {linear.initializer for group in groups for linear in group.linears}
    tables = _tables(model)
    weights, fixed, floats = sum(group.weights for group in groups), 0, 0
    for value in model.graph.initializers.values():
        tensor = value.const_value
        stored_once = value in tables and _is_head(model, value)  # as the head
        if value in chosen or stored_once or tensor is None:
            continue
        if value in tables and quantize.embedding:
            rows, columns = tensor.shape.numpy()
            weights += rows * columns
            fixed += stored_bits(PER_CHANNEL, rows, columns)
        else:
            floats += 32 * tensor.size
    return Footprint(weights, fixed, False, floats, CONTEXT * _kv_bytes(model, later))


def _tables(model: ir.Model) -> set[ir.Value]:
    """Tables of embeddings."""
    first = (node.inputs[0] for node in model.graph if is_op(node, "Gather"))
    return {
        value
        for value in first
        if value is not None
        and isinstance(value.const_value, LazyWeight)
        and len(value.const_value.rows_shape) == 2
    }


def _is_head(model: ir.Model, table: ir.Value) -> bool:
    """True if the table is the head's weight."""
    head, weight = head_of(model), table.const_value
    return (
        head is not None
        and isinstance(weight, LazyWeight)
        and weight.read_rows == head.weight.read_rows
    )


def _kv_bytes(model: ir.Model, later: Sequence[Pass]) -> int:
    """Of a token, in all layers."""
    dtype = next((one.dtype for one in later if isinstance(one, KVCache)), "float32")
    total = 0
    for node in (n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)):
        heads = node.attributes.get_int("kv_num_heads", 1)
        key, value = (width(v) or 0 if v is not None else 0 for v in node.inputs[1:3])
        total += LayerKV(0, heads, key // heads, value // heads, dtype).bytes_per_token
    return total
