"""Lowering of linear attention, a recurrence along the tokens of sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.backends.tvm.lowering.lower_attention import ATTENTION_INPUTS, pool_names, step_input
from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import raw_weight
from optc.runtime.executable.executable import LayerKV
from optc.runtime.executable.recurrent_state import state_slots, state_width


def _check(node: ir.Node) -> str:
    heads, key_heads, key_dim, value_dim = _sizes(node)
    decays = node.attributes.get_int("decays", 1)
    scans = len(node.inputs) > 5 and node.inputs[5] is not None
    delta = bool(node.attributes.get_int("delta", 0))
    if decays not in (1, key_dim) or (scans and delta):
        return f"linear attention with {decays} decays of a head and these rules"
    if min(heads, key_heads) <= 0 or heads % key_heads:
        return f"{heads} heads of linear attention are not a multiple of {key_heads} key heads"
    if min(key_dim, value_dim) <= 0 or not state_slots(key_dim, value_dim):
        return f"states of {key_dim} x {value_dim} have no place in a block"
    return ""


def _sizes(node: ir.Node) -> tuple[int, int, int, int]:
    """H, Hk, Dk, Dv."""
    names = ("num_heads", "key_heads", "key_dim", "value_dim")
    heads, key_heads, key_dim, value_dim = (node.attributes.get_int(name, 0) for name in names)
    return heads, key_heads, key_dim, value_dim


def _paged_linear_attention(lowering: Lowering, node: ir.Node) -> None:
    """q, k, v, decay, beta?, rates?, k_pool, v_pool, …."""
    heads, key_heads, key_dim, value_dim = _sizes(node)
    beta, rates = node.inputs[4:6]
    operands = [lowering.tensor(value) for value in node.inputs[:5] if value is not None]
    queries, values = key_heads * key_dim, heads * value_dim
    decays = node.attributes.get_int("decays", 1)
    rows, widths = rows_of(operands[0]), (queries, queries, values, heads * decays, heads)
    if rates is not None:
        widths = (queries, queries, values, values, heads)
    for tensor, width in zip(operands, widths, strict=False):
        if rows_of(tensor) != rows or width_of(tensor) != width:
            raise Refused(f"rows {list(tensor.shape)} where {[rows, width]} are expected")
    if rates is not None:
        operands.append(_rates(lowering, rates, (key_dim, values)))
    config = {
        "heads": heads,
        "key_heads": key_heads,
        "key_dim": key_dim,
        "value_dim": value_dim,
        "scale": node.attributes.get_float("scale", 1.0),
        "delta": bool(node.attributes.get_int("delta", 0)),
        "group": _group(lowering, node, state_width(key_dim, value_dim)),
        "groups": lowering.groups,
        "decays": decays,
        "rates": rates is not None,
        "beta": beta is not None,
    }
    inputs = [*operands, *(step_input(name) for name in ("slot_mapping", *ATTENTION_INPUTS))]
    pools = pool_names(node.attributes.get_int("layer", -1))
    outputs = [("float32", (rows, values))]
    (out,) = lowering.call("linear_attention", config, inputs, outputs, pools)
    lowering.tensors[node.outputs[0]] = out


def _rates(lowering: Lowering, value: ir.Value, shape: tuple[int, int]) -> Tensor:
    """Rates [Dk, H*Dv], float32."""
    constant = lowering.initializer(value, "rates").numpy().astype(np.float32)
    if constant.shape != shape:
        raise Refused(f"rates {list(constant.shape)} where {list(shape)} are expected")
    name = f"{value.name}.rates"
    return lowering.weight(name, lambda: raw_weight(name, ir.tensor(constant, name=name)))[0]


def _group(lowering: Lowering, node: ir.Node, dim: int) -> int:
    """The KV group; refuses pools that are not of ``dim`` values for a head and slot."""
    group = node.attributes.get_int("group", 0)
    layer = node.attributes.get_int("layer", -1)
    wanted = LayerKV(group, node.attributes.get_int("num_heads", 0), dim, dim, "float32")
    if not 0 <= layer < len(lowering.kv_layers) or lowering.kv_layers[layer] != wanted:
        raise Refused(f"layer {layer} has not the pools of the states: {wanted}")
    return group


HANDLERS = {("optc", "PagedLinearAttention"): Handler(_paged_linear_attention, _check)}
