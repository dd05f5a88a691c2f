"""Lowering of what only packed rows have: attention in both directions, pooling, and layer norms
and activations fused with what is around them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from optc.backends.tvm.kv_layout import POOL_TYPES
from optc.backends.tvm.lowering.lower_attention import kv_config, pool_names
from optc.backends.tvm.lowering.lower_rows import (
    bind_quantized,
    quantized_outputs,
    rotation_check,
    rounding,
    vector,
)
from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Dim, Tensor
from optc.ir.forms.packed import STARTS
from optc.ir.functions import operand
from optc.runtime.executable.executable import LayerKV

#: Inputs of the step that say where keys and values lie, beside `STARTS`; i32. Every sequence has
#: tiles of its own, one after the other.
PLACES = ("slot_mapping", "kv_lengths", "block_tables", "block_size")


def _input(name: str) -> Tensor:
    return Tensor(name, "int32", ())


def _pool(lowering: Lowering, node: ir.Node, key_dim: int, value_dim: int) -> tuple[LayerKV, int]:
    """The pools that a layer's keys and values pass through, and their number: layers of one shape
    share them, because nothing is read back later."""
    heads = node.attributes.get_int("kv_num_heads", 0)
    dtype = node.attributes.get_string("kv_dtype", "")
    if heads <= 0 or node.attributes.get_int("num_heads", 0) % heads:
        raise Refused(f"its heads are no multiple of {heads} KV heads")
    for name, size in (("key", key_dim), ("value", value_dim)):
        if size <= 0 or size % 8:
            raise Refused(f"the {name} dimension {size} is no multiple of 8")
    layer = LayerKV(0, heads, key_dim, value_dim, dtype)
    layers = lowering.kv_layers
    if layer not in layers:
        lowering.kv_layers = layers = [*layers, layer]
    return layer, list(layers).index(layer)


def _attend(lowering: Lowering, node: ir.Node, q: Tensor, layer: LayerKV, index: int) -> None:
    heads = node.attributes.get_int("num_heads", 0)
    config: dict[str, Any] = {
        **kv_config(layer),
        "heads": heads,
        "scale": node.attributes.get_float("scale", 1.0),
        "window": node.attributes.get_int("window", 0),
        "causal": False,
    }
    element = POOL_TYPES[layer.dtype].element
    pools = [Tensor(name, element, ()) for name in pool_names(index)]
    where = [_input(name) for name in (STARTS, *PLACES[1:])]
    shape = (q.shape[0], heads * layer.value_dim)
    (out,) = lowering.call("paged_attention", config, [q, *pools, *where], [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


def _packed_attention(lowering: Lowering, node: ir.Node) -> None:
    q, k, v = (lowering.tensor(value) for value in node.inputs[:3])
    rows_of(q), rows_of(k), rows_of(v)
    heads = node.attributes.get_int("kv_num_heads", 1) or 1
    layer, index = _pool(lowering, node, width_of(k) // heads, width_of(v) // heads)
    inputs = [k, v, _input(PLACES[0])]
    lowering.call("write_kv", kv_config(layer), inputs, [], pool_names(index))
    _attend(lowering, node, q, layer, index)


def _rotary_packed_attention(lowering: Lowering, node: ir.Node) -> None:
    attributes = node.attributes
    key_dim, value_dim = (attributes.get_int(f"{kind}_dim", 0) for kind in ("key", "value"))
    layer, index = _pool(lowering, node, key_dim, value_dim)
    given = [lowering.tensor(v) if v is not None else None for v in node.inputs[:5]]
    qkv = given[0]
    if qkv is None:
        raise Refused("a required operand is absent")
    heads = attributes.get_int("num_heads", 0)
    config = {
        **kv_config(layer),
        "heads": heads,
        "rotary_dim": attributes.get_int("rotary_embedding_dim", 0),
        "interleaved": bool(attributes.get_int("interleaved", 0)),
        "q_norm": given[3] is not None,
        "k_norm": given[4] is not None,
        "epsilon": attributes.get_float("epsilon", 0.0),
    }
    if block := attributes.get_int("hadamard", 0):
        config["hadamard"] = block
    inputs = [t for t in given if t is not None] + [_input(PLACES[0])]
    shape = (rows_of(qkv), heads * key_dim)
    (q,) = lowering.call("rotary_kv", config, inputs, [("float32", shape)], pool_names(index))
    _attend(lowering, node, q, layer, index)


def _pool_rows(lowering: Lowering, node: ir.Node) -> None:
    x, width = lowering.tensor(node.inputs[0]), width_of(lowering.tensor(node.inputs[0]))
    rows_of(x)
    mode, skip = node.attributes.get_string("mode", ""), node.attributes.get_int("skip", 0)
    config = {"width": width, "mode": mode, **({"skip": skip} if skip else {})}
    outputs: list[tuple[str, tuple[Dim, ...]]] = [("float32", ("B", width))]
    (out,) = lowering.call("pool_rows", config, [x, _input(STARTS)], outputs)
    lowering.tensors[node.outputs[0]] = out


def _window_rows(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    names = ("width", "kernel", "stride", "before", "length", "windows")
    config = {name: node.attributes.get_int(name, 0) for name in names}
    rate, rest = divmod(config["length"], config["windows"])
    rows = rows_of(x)
    if rest or width_of(x) != config["width"]:
        raise Refused(f"windows of rows {list(x.shape)} are {config}")
    shape = (_divided(rows, rate), config["kernel"] * config["width"])
    (out,) = lowering.call("window_rows", config, [x], [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


def _divided(rows: Dim, factor: int) -> Dim:
    """A number of rows, or so many times a symbol, over a factor of it."""
    if isinstance(rows, int):
        return rows // factor
    count, _, symbol = rows.rpartition("*")
    left = int(count or 1) // factor
    return symbol if left == 1 else f"{left}*{symbol}"


def _layer_norm(lowering: Lowering, node: ir.Node) -> None:
    """LayerNormQuantize, AddLayerNorm and AddLayerNormQuantize: what nobody reads of the results
    is not written."""
    residual, quantized = node.op_type.startswith("Add"), node.op_type.endswith("Quantize")
    count = 2 if residual else 1
    operands = [lowering.tensor(v) for v in node.inputs[:count]]
    rows, width = rows_of(operands[-1]), width_of(operands[-1])
    inputs = [*operands, vector(lowering, node.inputs[count], width, "scale")]
    bias = operand(node, "bias")
    if bias is not None:
        inputs.append(vector(lowering, bias, width, "bias"))
    wanted = [_is_read(v) for v in node.outputs[:count]]
    config: dict[str, Any] = {
        "width": width,
        "epsilon": node.attributes.get_float("epsilon", 1e-5),
        "bias": bias is not None,
        "residual": residual,
        "sum": residual and wanted[0],
        "plain": wanted[-1],
        "quantized": quantized,
        **rounding(node),
    }
    outputs: list[tuple[str, tuple[Dim, ...]]] = [("float32", (rows, width))] * sum(wanted)
    outputs += quantized_outputs(node, rows, width) if quantized else []
    results = lowering.call("layer_norm", config, inputs, outputs)
    floats = iter(results)
    for value, read in zip(node.outputs[:count], wanted, strict=True):
        if read:
            lowering.tensors[value] = next(floats)
    if quantized:
        bind_quantized(lowering, node, results, rows)


def _is_read(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())


def _activation_quantize(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    rows, width = rows_of(x), width_of(x)
    name = node.attributes.get_string("activation", "")
    config = {"width": width, "activation": name, **rounding(node)}
    outputs = quantized_outputs(node, rows, width)
    results = lowering.call("activation_quantize", config, [x], outputs)
    bind_quantized(lowering, node, results, rows)


HANDLERS = {
    ("optc", "PackedAttention"): Handler(_packed_attention),
    ("optc", "RotaryPackedAttention"): Handler(_rotary_packed_attention),
    ("optc", "PoolRows"): Handler(_pool_rows),
    ("optc", "WindowRows"): Handler(_window_rows),
    ("optc", "LayerNormQuantize"): Handler(_layer_norm, rotation_check),
    ("optc", "AddLayerNorm"): Handler(_layer_norm),
    ("optc", "AddLayerNormQuantize"): Handler(_layer_norm, rotation_check),
    ("optc", "ActivationQuantize"): Handler(_activation_quantize, rotation_check),
}
