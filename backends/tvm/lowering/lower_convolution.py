"""Lowering of convolutions along the tokens of sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.backends.tvm.lowering.lower_attention import ATTENTION_INPUTS, pool_names, step_input
from optc.backends.tvm.lowering.lower_rows import vector
from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import raw_weight

#: Halves of the channels are keys and values, of which kernels take multiples of 8.
_MULTIPLE = 16


def _check(node: ir.Node) -> str:
    channels = node.attributes.get_int("channels", 0)
    if channels % _MULTIPLE:
        return f"{channels} channels of a convolution are not a multiple of {_MULTIPLE}"
    return ""


def _paged_causal_conv(lowering: Lowering, node: ir.Node) -> None:
    """x, weight [C, K], bias?, k_pool, v_pool, …."""
    x = lowering.tensor(node.inputs[0])
    channels, kernel = (node.attributes.get_int(name, 0) for name in ("channels", "kernel"))
    if width_of(x) != channels:
        raise Refused(f"{channels} channels of rows {list(x.shape)}")
    bias = node.inputs[2]
    config = {
        "channels": channels,
        "kernel": kernel,
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


def _filters(lowering: Lowering, node: ir.Node) -> Tensor:
    """The weight, its rows by the distance of what they multiply."""
    value = node.inputs[1]
    constant = lowering.initializer(value, "weight")
    rows = np.ascontiguousarray(constant.numpy().astype(np.float32).T)
    name = f"{node.name or value}.taps"
    return lowering.weight(name, lambda: raw_weight(name, ir.tensor(rows, name=name)))[0]


HANDLERS = {("optc", "PagedCausalConv"): Handler(_paged_causal_conv, _check)}
