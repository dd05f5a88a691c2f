"""Lowering of attention to the states of an encoder, and of the function that puts their keys and
values into the pools."""

from __future__ import annotations

import onnx_ir as ir

from optc.backends.tvm.kv_layout import POOL_TYPES
from optc.backends.tvm.lowering.lower_attention import (
    ATTENTION_INPUTS,
    attention_check,
    kv_config,
    layer_of,
    pool_names,
    step_input,
)
from optc.backends.tvm.lowering.walk import Handler, Lowering, rows_of
from optc.backends.tvm.program import Call, Function, Tensor
from optc.ir.forms.kv_pools import KVPools

#: Name of the function; its arguments are slots i32 [1, n], keys and values of each layer of the
#: last KV group, and those layers' pools.
FUNCTION = "write_encoded"


def write_function(kv: KVPools, pools: tuple[tuple[Tensor, Tensor], ...]) -> Function:
    """``write_encoded``; ``pools`` are those of every layer."""
    slots = Tensor("encoded_slots", "int32", (1, "n"))
    states: list[Tensor] = []
    written: list[Tensor] = []
    calls = []
    for index in kv.groups[-1].layers:
        layer = kv.layers[index]
        widths = layer.kv_heads * layer.key_dim, layer.kv_heads * layer.value_dim
        pair = [
            Tensor(f"encoded_{kind}.{index}", "float32", ("n", width))
            for kind, width in zip("kv", widths, strict=True)
        ]
        states += pair
        written += pools[index]
        inputs = (pair[0].name, pair[1].name, slots.name)
        updated = tuple(pool.name for pool in pools[index])
        calls.append(Call("write_kv", kv_config(layer), inputs, (), updated))
    return Function(FUNCTION, (slots, *states, *written), tuple(calls), slots.name)


def _cross_attention(lowering: Lowering, node: ir.Node) -> None:
    """q, k_pool, v_pool, …: all states of a sequence are seen by all of its rows."""
    entry, q = layer_of(lowering, node), lowering.tensor(node.inputs[0])
    heads = node.attributes.get_int("num_heads", 0)
    config = {
        **kv_config(entry),
        "group": entry.group,
        "groups": lowering.groups,
        "heads": heads,
        "scale": node.attributes.get_float("scale", 1.0),
        "causal": False,
    }
    element = POOL_TYPES[entry.dtype].element
    pools = [Tensor(name, element, ()) for name in pool_names(node.attributes["layer"].as_int())]
    inputs = [q, *pools, *(step_input(name) for name in ATTENTION_INPUTS)]
    shape = (rows_of(q), heads * entry.value_dim)
    (out,) = lowering.call("paged_attention", config, inputs, [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {("optc", "PagedCrossAttention"): Handler(_cross_attention, attention_check)}
