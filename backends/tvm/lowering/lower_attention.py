"""Lowering of attention, rotary embedding and KV writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from optc.backends.tvm.bias_runs import bias_runs
from optc.backends.tvm.kv_layout import POOL_TYPES, pool_problem
from optc.backends.tvm.lowering.rotation import head_problem
from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import raw_weight
from optc.ir.forms.ragged import TREE_PARENT
from optc.ir.functions import operand
from optc.runtime.executable.executable import LayerKV

#: Names of the step's inputs that attention reads, in order.
ATTENTION_INPUTS = ("query_starts", "kv_lengths", "block_tables", "block_size")
#: Operands by query head, f32 [H], and the fields of the kernel's config that say they are there.
_BY_HEAD = {"sinks": "sinks", "alibi_slopes": "slopes"}
#: Names of those that take the place of ``tree_parent`` (`optc.backends.tvm.loaded.tree_paths`).
TREE_INPUTS = ("tree_tiles", "tree_slots")


def attention_check(node: ir.Node) -> str:
    """Empty if there are kernels for an attention's heads and pools, else the reason."""
    kv_heads = node.attributes.get_int("kv_num_heads", 0)
    heads = node.attributes.get_int("num_heads", 0)
    if kv_heads <= 0 or heads % kv_heads:
        return f"{heads} query heads are not a multiple of {kv_heads} KV heads"
    return pool_problem(node.attributes.get_string("kv_dtype", ""))


def _rotary_check(node: ir.Node) -> str:
    block = node.attributes.get_int("hadamard", 0)
    problem = head_problem(block, node.attributes.get_int("key_dim", 0))
    return problem or attention_check(node)


def layer_of(lowering: Lowering, node: ir.Node) -> LayerKV:
    """The entry of the model's layers that an attention names; refuses what kernels do not read."""
    index = node.attributes.get_int("layer", -1)
    if not 0 <= index < len(lowering.kv_layers):
        raise Refused(f"layer {index} is none of the model's KV layers")
    entry = lowering.kv_layers[index]
    for kind, size in (("key_dim", entry.key_dim), ("value_dim", entry.value_dim)):
        if size % 8:
            raise Refused(f"{kind} {size} is not a multiple of 8")
    if entry.dtype != node.attributes.get_string("kv_dtype", ""):
        raise Refused("the node's KV type is not that of the model's KV layer")
    return entry


def kv_config(entry: LayerKV) -> dict[str, Any]:
    """Shape and type of a layer's pools, as the kernels' configs state them."""
    return {
        "kv_heads": entry.kv_heads,
        "key_dim": entry.key_dim,
        "value_dim": entry.value_dim,
        "kv_dtype": entry.dtype,
    }


def _place(lowering: Lowering, entry: LayerKV) -> dict[str, Any]:
    return {**kv_config(entry), "group": entry.group, "groups": lowering.groups}


def pool_names(layer: int) -> tuple[str, str]:
    """Names of a layer's K and V pool."""
    return f"k_pool.{layer}", f"v_pool.{layer}"


def step_input(name: str) -> Tensor:
    """An integer input of the step."""
    return Tensor(name, "int32", ())


def _attend(lowering: Lowering, node: ir.Node, q: Tensor, entry: LayerKV) -> None:
    """Append paged attention over the layer's pools, which hold this step's rows by now."""
    kept: list[tuple[LayerKV, tuple[str, ...]]] = [(entry, _pools(node))]
    if (recent := _recent(lowering, node)) is not None:
        kept.append((recent, _recent_pools(node)))
    pools = [Tensor(name, POOL_TYPES[one.dtype].element, ()) for one, two in kept for name in two]
    if TREE_PARENT in {value.name for value in node.inputs if value is not None}:
        copies = [step_input(name) for name in TREE_INPUTS]
        for one, names in kept:
            lowering.call("tree_kv", _place(lowering, one), copies, [], names)
    attributes = node.attributes
    heads = attributes.get_int("num_heads", 0)
    config = {
        **_place(lowering, entry),
        "heads": heads,
        "scale": attributes.get_float("scale", 1.0),
        "softcap": attributes.get_float("softcap", 0.0),
        "window": attributes.get_int("window", 0),
        "query_bits": attributes.get_int("query_bits", 0),
    }
    inputs = [q, *pools, *(step_input(name) for name in ATTENTION_INPUTS)]
    if attributes.get_int("chunk", 0):
        config["chunk"] = attributes.get_int("chunk", 0)
    if recent is not None:
        config |= {"recent": attributes.get_int("recent", 0), "recent_group": recent.group}
    for name, field in _BY_HEAD.items():
        given = operand(node, name)
        if given is not None:
            inputs.append(_by_head(lowering, given, heads))
            config[field] = True
    if (biases := operand(node, "distance_bias")) is not None:
        inputs.append(_biases(lowering, biases, heads))
        config["distances"] = inputs[-1].shape[1]
    shape = (q.shape[0], heads * entry.value_dim)
    (out,) = lowering.call("paged_attention", config, inputs, [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


def _by_head(lowering: Lowering, value: ir.Value, heads: int) -> Tensor:
    tensor = lowering.tensor(value)
    if tensor.dtype != "float32" or tensor.shape != (heads,):
        raise Refused(f"{value.name} is {tensor.dtype} {list(tensor.shape)}, not one of each head")
    return tensor


def _biases(lowering: Lowering, value: ir.Value, heads: int) -> Tensor:
    """The runs of biases by distance."""
    constant = lowering.initializer(value, "distance_bias")
    biases = constant.numpy()
    if biases.ndim != 2 or len(biases) != heads:
        raise Refused(f"{value.name} is {list(biases.shape)}, not one row of each head")
    name = f"{value.name}.runs"
    runs = ir.tensor(bias_runs(biases.astype(np.float32)), name=name)
    return lowering.weight(name, lambda: raw_weight(name, runs))[0]


def _pools(node: ir.Node) -> tuple[str, str]:
    return pool_names(node.attributes.get_int("layer", -1))


def _recent(lowering: Lowering, node: ir.Node) -> LayerKV | None:
    """The pools of the layer's latest tokens, if there are any."""
    if operand(node, "recent_k_pool") is None:
        return None
    return lowering.kv_layers[node.attributes.get_int("recent_layer", -1)]


def _recent_pools(node: ir.Node) -> tuple[str, ...]:
    if operand(node, "recent_k_pool") is None:
        return ()
    return pool_names(node.attributes.get_int("recent_layer", -1))


def _written(lowering: Lowering, node: ir.Node, entry: LayerKV) -> dict[str, Any]:
    """The places where keys and values are written, as the kernels' configs state them."""
    recent = _recent(lowering, node)
    latest = {} if recent is None else {"recent_group": recent.group}
    return {**_place(lowering, entry), **latest}


def _paged_attention(lowering: Lowering, node: ir.Node) -> None:
    """q, k, v, k_pool, v_pool, … with K and V ready to be stored."""
    entry = layer_of(lowering, node)
    q, k, v = (lowering.tensor(value) for value in node.inputs[:3])
    rows_of(q), rows_of(k), rows_of(v)
    names = (*_pools(node), *_recent_pools(node))
    inputs = [k, v, step_input("slot_mapping")]
    lowering.call("write_kv", _written(lowering, node, entry), inputs, [], names)
    _attend(lowering, node, q, entry)


def _rotary_paged_attention(lowering: Lowering, node: ir.Node) -> None:
    """qkv, cos?, sin?, q_scale?, k_scale?, k_pool, v_pool, …."""
    entry = layer_of(lowering, node)
    attributes = node.attributes
    heads = attributes.get_int("num_heads", 0)
    operands = [lowering.tensor(v) if v is not None else None for v in node.inputs[:5]]
    qkv = operands[0]
    if qkv is None:
        raise Refused("a required operand is absent")
    config = {
        **_written(lowering, node, entry),
        "heads": heads,
        "rotary_dim": attributes.get_int("rotary_embedding_dim", 0),
        "interleaved": bool(attributes.get_int("interleaved", 0)),
        "q_norm": operands[3] is not None,
        "k_norm": operands[4] is not None,
        "epsilon": attributes.get_float("epsilon", 0.0),
    }
    if block := attributes.get_int("hadamard", 0):
        config["hadamard"] = block
    inputs = [t for t in operands if t is not None] + [step_input("slot_mapping")]
    shape = (rows_of(qkv), heads * entry.key_dim)
    names = (*_pools(node), *_recent_pools(node))
    (q,) = lowering.call("rotary_kv", config, inputs, [("float32", shape)], names)
    _attend(lowering, node, q, entry)


def _rotary(lowering: Lowering, node: ir.Node) -> None:
    x, cos, sin = (lowering.tensor(value) for value in node.inputs[:3])
    heads = node.attributes.get_int("num_heads", 0)
    if heads <= 0:
        raise Refused("num_heads is missing")
    dim = width_of(x) // heads
    config = {
        "heads": heads,
        "dim": dim,
        "rotary_dim": node.attributes.get_int("rotary_embedding_dim", 0) or dim,
        "interleaved": bool(node.attributes.get_int("interleaved", 0)),
    }
    shape = (rows_of(x), width_of(x))
    (out,) = lowering.call("rotary", config, [x, cos, sin], [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {
    ("optc", "PagedAttention"): Handler(_paged_attention, attention_check),
    ("optc", "RotaryPagedAttention"): Handler(_rotary_paged_attention, _rotary_check),
    ("optc", "RotaryEmbedding"): Handler(_rotary),
    ("", "RotaryEmbedding"): Handler(_rotary),
}
