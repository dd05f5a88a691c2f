"""Lowering of norms, gated activations and activation quantization: kernels over rows."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from optc.backends.tvm.lowering.rotation import block_problem
from optc.backends.tvm.lowering.walk import (
    SUM_WIDTH,
    Handler,
    Lowering,
    Refused,
    round_up,
    rows_of,
    times,
    width_of,
)
from optc.backends.tvm.program import Dim, Tensor
from optc.ir.functions.token_wise import GATE_DEFAULTS

_ACTIVATIONS = ("silu", "gelu", "gelu_tanh")


def _bits(node: ir.Node) -> dict[str, int]:
    """The node's bits, as the configuration of a quantizing kernel states them."""
    bits = node.attributes.get_int("bits", 8)
    return {"bits": bits} if bits != 8 else {}


def rounding(node: ir.Node) -> dict[str, int]:
    """Bits and rotation of the node, as the configuration of a quantizing kernel states them."""
    block = node.attributes.get_int("hadamard", 0)
    return {**_bits(node), **({"hadamard": block} if block else {})}


def quantized_outputs(node: ir.Node, rows: Dim, width: int) -> list[tuple[str, tuple[Dim, ...]]]:
    """Outputs of a quantizing kernel: values, scales and the sums of each 32 values. Of 16 bits a
    row is two, the high and the low one."""
    padded, rows = round_up(width, SUM_WIDTH), times(2, rows) if _bits(node) else rows
    return [
        ("int8", (rows, padded)),
        ("float32", (rows,)),
        ("int32", (rows, padded // SUM_WIDTH)),
    ]


def bind_quantized(lowering: Lowering, node: ir.Node, results: list[Tensor], rows: Dim) -> None:
    """The last two outputs of ``node`` are q and s; results end in q, s, sums."""
    q, s, sums = results[-3:]
    lowering.tensors[node.outputs[-2]] = q
    lowering.tensors[node.outputs[-1]] = s
    lowering.sums[q.name] = sums
    if _bits(node):
        lowering.pairs[q.name] = rows


def vector(lowering: Lowering, value: ir.Value | None, width: int, what: str) -> Tensor:
    """An operand f32 [width].

    Raises:
        Refused: It has another shape.
    """
    tensor = lowering.tensor(value)
    if tensor.shape != (width,):
        raise Refused(f"the {what} has shape {list(tensor.shape)}, not [{width}]")
    return tensor


def _last_axis(node: ir.Node) -> str:
    axis = node.attributes.get_int("axis", -1)
    return "" if axis in (-1, 1) else f"normalization over axis {axis}, not the last"


def _rms_norm(lowering: Lowering, node: ir.Node) -> None:
    """RMSNormalization and our forms of it with a residual sum before or quantization behind."""
    residual, quantized = node.op_type.startswith("Add"), node.op_type.endswith("Quantize")
    operands = [lowering.tensor(v) for v in node.inputs[: 2 if residual else 1]]
    rows, width = rows_of(operands[-1]), width_of(operands[-1])
    scale = vector(lowering, node.inputs[len(operands)], width, "scale")
    config: dict[str, Any] = {
        "width": width,
        "epsilon": node.attributes.get_float("epsilon", 1e-5),
        "residual": residual,
        "quantized": quantized,
        **rounding(node),
    }
    outputs: list[tuple[str, tuple[Dim, ...]]] = [("float32", (rows, width))] * residual
    outputs += quantized_outputs(node, rows, width) if quantized else [("float32", (rows, width))]
    results = lowering.call("rms_norm", config, [*operands, scale], outputs)
    if residual:
        lowering.tensors[node.outputs[0]] = results[0]
    if quantized:
        bind_quantized(lowering, node, results, rows)
    else:
        lowering.tensors[node.outputs[int(residual)]] = results[-1]


def _layer_norm(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    rows, width = rows_of(x), width_of(x)
    inputs = [x, vector(lowering, node.inputs[1], width, "scale")]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        inputs.append(vector(lowering, bias, width, "bias"))
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    config = {"width": width, "epsilon": epsilon, "bias": bias is not None}
    (out,) = lowering.call("layer_norm", config, inputs, [("float32", (rows, width))])
    lowering.tensors[node.outputs[0]] = out


def _head_rms_norm(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    heads = node.attributes.get_int("num_heads", 1)
    rows, width = rows_of(x), width_of(x)
    scale = vector(lowering, node.inputs[1], width // heads, "scale")
    config = {
        "heads": heads,
        "dim": width // heads,
        "epsilon": node.attributes.get_float("epsilon", 1e-5),
    }
    (out,) = lowering.call("head_rms_norm", config, [x, scale], [("float32", (rows, width))])
    lowering.tensors[node.outputs[0]] = out


def _head_concat(lowering: Lowering, node: ir.Node) -> None:
    a, b = (lowering.tensor(value) for value in node.inputs)
    heads, shared = node.attributes.get_int("num_heads", 1), node.attributes.get_int("shared", 0)
    config = {
        "heads": heads,
        "first": width_of(a) // (1 if shared else heads),
        "second": width_of(b) // heads,
        "shared": bool(shared),
    }
    shape = (rows_of(b), heads * (config["first"] + config["second"]))
    (out,) = lowering.call("head_concat", config, [a, b], [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


def _activation_check(node: ir.Node) -> str:
    name = node.attributes.get_string("activation", "")
    unknown = "" if name in _ACTIVATIONS else f"activation {name!r} has no kernel"
    return unknown or rotation_check(node)


def _gated_activation(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    rows, width = rows_of(x), width_of(x) // 2
    quantized = node.op_type.endswith("Quantize")
    config = {
        "width": width,
        "activation": node.attributes.get_string("activation", ""),
        "quantized": quantized,
        **{
            key: attribute.as_float()
            for key, attribute in node.attributes.items()
            if key in GATE_DEFAULTS
        },
        **rounding(node),
    }
    outputs = quantized_outputs(node, rows, width) if quantized else [("float32", (rows, width))]
    results = lowering.call("gated_activation", config, [x], outputs)
    if quantized:
        bind_quantized(lowering, node, results, rows)
    else:
        lowering.tensors[node.outputs[0]] = results[0]


def _quantize(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    rows, width = rows_of(x), width_of(x)
    config = {"width": width, **rounding(node)}
    results = lowering.call("quantize", config, [x], quantized_outputs(node, rows, width))
    bind_quantized(lowering, node, results, rows)


def _block_hadamard(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    rows, width = rows_of(x), width_of(x)
    config = {
        "width": width,
        "block": node.attributes.get_int("block", 0),
        "inverse": bool(node.attributes.get_int("inverse", 0)),
    }
    (out,) = lowering.call("block_hadamard", config, [x], [("float32", (rows, width))])
    lowering.tensors[node.outputs[0]] = out


def _block_check(node: ir.Node) -> str:
    return block_problem(node.attributes.get_int("block", 0), node.attributes.get_int("width", 0))


def rotation_check(node: ir.Node) -> str:
    """Empty if kernels rotate what the node quantizes, else the reason."""
    block = node.attributes.get_int("hadamard", 0)
    return block_problem(block, node.attributes.get_int("width", 0)) if block else ""


HANDLERS = {
    ("", "RMSNormalization"): Handler(_rms_norm, _last_axis),
    ("optc", "AddRMSNorm"): Handler(_rms_norm),
    ("optc", "RMSNormQuantize"): Handler(_rms_norm, rotation_check),
    ("optc", "AddRMSNormQuantize"): Handler(_rms_norm, rotation_check),
    ("", "LayerNormalization"): Handler(_layer_norm, _last_axis),
    ("optc", "HeadRMSNorm"): Handler(_head_rms_norm),
    ("optc", "HeadConcat"): Handler(_head_concat),
    ("optc", "GatedActivation"): Handler(_gated_activation, _activation_check),
    ("optc", "GatedActivationQuantize"): Handler(_gated_activation, _activation_check),
    ("optc", "QuantizeActivation"): Handler(_quantize, rotation_check),
    ("optc", "BlockHadamard"): Handler(_block_hadamard, _block_check),
}
