"""Lowering of convolutions along the tokens of sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.backends.tvm.lowering.lower_attention import ATTENTION_INPUTS, pool_names, step_input
from optc.backends.tvm.lowering.lower_rows import vector
from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import raw_weight
from optc.runtime.executable.executable import LayerKV


def _check(node: ir.Node) -> str:
    channels, kernel = _sizes(node)
    if channels <= 0 or channels % 2 or kernel < 2:
        return f"a convolution of {channels} channels over {kernel} rows has no halves or no rows"
    return ""


def _sizes(node: ir.Node) -> tuple[int, int]:
    """C and K."""
    return node.attributes.get_int("channels", 0), node.attributes.get_int("kernel", 0)


def _paged_causal_conv(lowering: Lowering, node: ir.Node) -> None:
    """x, weight [C, K], bias?, k_pool, v_pool, …."""
    x = lowering.tensor(node.inputs[0])
    channels, kernel = _sizes(node)
    if width_of(x) != channels:
        raise Refused(f"{channels} channels of rows {list(x.shape)}")
    bias = node.inputs[2]
    config = {
        "channels": channels,
        "kernel": kernel,
        "width": _width(lowering, node),
        "bias": bias is not None,
        "group": node.attributes.get_int("group", 0),
        "groups": lowering.groups,
    }
    inputs = [x, _filters(lowering, node)]
    inputs += [] if bias is None else [vector(lowering, bias, channels, "bias")]
    inputs += [step_input(name) for name in ("slot_mapping", *ATTENTION_INPUTS)]
    pools = pool_names(node.attributes.get_int("layer", -1))
    outputs = [("float32", (rows_of(x), channels))]
    (out,) = lowering.call("causal_conv", config, inputs, outputs, pools)
    lowering.tensors[node.outputs[0]] = out


def _width(lowering: Lowering, node: ir.Node) -> int:
    """Numbers of a slot in each pool; refuses pools that are none of states of rows."""
    group, layer = (node.attributes.get_int(name, -1) for name in ("group", "layer"))
    if 0 <= layer < len(lowering.kv_layers):
        width = lowering.kv_layers[layer].key_dim
        if lowering.kv_layers[layer] == LayerKV(group, 1, width, width, "float32"):
            return width
    raise Refused(f"layer {layer} has not the pools of the rows that the convolution goes on from")


def _filters(lowering: Lowering, node: ir.Node) -> Tensor:
    """The weight, its rows by the distance of what they multiply."""
    value = node.inputs[1]
    constant = lowering.initializer(value, "weight")
    rows = np.ascontiguousarray(constant.numpy().astype(np.float32).T)
    name = f"{node.name or value}.taps"
    return lowering.weight(name, lambda: raw_weight(name, ir.tensor(rows, name=name)))[0]


HANDLERS = {("optc", "PagedCausalConv"): Handler(_paged_causal_conv, _check)}
