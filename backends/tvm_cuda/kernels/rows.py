"""Kernels that take a block a row: norms, rotation, quantization, activations, element-wise."""

from __future__ import annotations

import tvm

from optc.backends.tvm.kernels.dsl.script import kernel
from optc.backends.tvm.kernels.token_wise.activation import GatedActivation
from optc.backends.tvm.kernels.token_wise.elementwise import Elementwise
from optc.backends.tvm.kernels.token_wise.hadamard import BlockHadamard
from optc.backends.tvm.kernels.token_wise.layer_norm import LayerNorm
from optc.backends.tvm.kernels.token_wise.norm import HeadRMSNorm, RMSNorm
from optc.backends.tvm.kernels.token_wise.quantize import Quantize, quantized_arguments
from optc.backends.tvm_cuda.kernels.launch import float_bits, launch, template
from optc.errors import UnsupportedError

#: Values that a thread holds, where a row has enough; least and most threads of a block.
_VALUES, _LEAST_THREADS, _MOST_THREADS = 8, 64, 1024
_ACTIVATIONS = {"silu": "Silu", "gelu": "Gelu", "gelu_tanh": "GeluTanh"}
_UNARY = {
    **_ACTIVATIONS,
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "exp": "Exp",
    "erf": "Erf",
    "scale": "Scale",
    "softcap": "Softcap",
}
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}


def quantize(config: Quantize) -> tvm.tirx.PrimFunc:
    """x f32 [T,K] -> q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32]."""
    with kernel("quantize") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, config.width))
        out = quantized_arguments(builder, rows, config.width)
        threads = _threads(config.width)
        function = template("quantize", config.width, threads, config.hadamard)
        launch(function, (rows,), threads, (x, out.q, out.scale, out.sums))
    return builder.finish()


def block_hadamard(config: BlockHadamard) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.token_wise.hadamard.block_hadamard`."""
    width, threads = config.width, _threads(config.width)
    with kernel("block_hadamard") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        out = builder.argument("out", (rows, width))
        function = template("block_hadamard", width, threads, config.block, config.inverse)
        launch(function, (rows,), threads, (x, out))
    return builder.finish()


def rms_norm(config: RMSNorm) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.token_wise.norm.rms_norm`."""
    width, threads = config.width, _threads(config.width)
    with kernel("rms_norm") as builder:
        rows = builder.size()
        residual = builder.argument("residual", (rows, width)) if config.residual else None
        x = builder.argument("x", (rows, width))
        scale = builder.argument("scale", (width,))
        total = builder.argument("sum", (rows, width)) if config.residual else None
        arguments = [x if residual is None else residual, x, scale]
        if config.quantized:
            quantized = quantized_arguments(builder, rows, width)
            name, rotation = "rms_norm_quantize", [config.hadamard]
            results = [quantized.q, quantized.scale, quantized.sums]
        else:
            name, rotation = "rms_norm", []
            results = [builder.argument("out", (rows, width))]
        arguments += [arguments[0] if total is None else total, *results]
        options = (float_bits(config.epsilon), config.residual, *rotation)
        launch(template(name, width, threads, *options), (rows,), threads, arguments)
    return builder.finish()


def layer_norm(config: LayerNorm) -> tvm.tirx.PrimFunc:
    """x f32 [T,K], scale f32 [K], [bias f32 [K]] -> out f32 [T,K]."""
    width, threads = config.width, _threads(config.width)
    with kernel("layer_norm") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        scale = builder.argument("scale", (width,))
        bias = builder.argument("bias", (width,)) if config.bias else scale
        out = builder.argument("out", (rows, width))
        function = template("layer_norm", width, threads, float_bits(config.epsilon), config.bias)
        launch(function, (rows,), threads, (x, scale, bias, out))
    return builder.finish()


def head_rms_norm(config: HeadRMSNorm) -> tvm.tirx.PrimFunc:
    """x f32 [T,n*d], scale f32 [d] -> out f32 [T,n*d], each run of d values normalized alone."""
    width = config.heads * config.dim
    with kernel("head_rms_norm") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        scale = builder.argument("scale", (config.dim,))
        out = builder.argument("out", (rows, width))
        threads, epsilon = _threads(width), float_bits(config.epsilon)
        function = template("head_rms_norm", config.heads, config.dim, threads, epsilon)
        launch(function, (rows,), threads, (x, scale, out))
    return builder.finish()


def gated_activation(config: GatedActivation) -> tvm.tirx.PrimFunc:
    """gate_up f32 [T,2F] (gate first) -> out f32 [T,F], or q, s, qsum.

    Raises:
        UnsupportedError: The activation is not known.
    """
    width, threads = config.width, _threads(config.width)
    operation = _operation(config.activation, _ACTIVATIONS, "GatedActivation")
    factors = (float_bits(v) for v in (config.alpha, config.limit, config.up_shift))
    gate = template("Gate", operation, *factors)
    with kernel("gated_activation") as builder:
        rows = builder.size()
        gate_up = builder.argument("gate_up", (rows, 2 * width))
        if config.quantized:
            out = quantized_arguments(builder, rows, width)
            name, rotation = "gated_activation_quantize", [config.hadamard]
            results = [out.q, out.scale, out.sums]
        else:
            name, rotation = "gated_activation", []
            results = [builder.argument("out", (rows, width))]
        function = template(name, gate, width, threads, *rotation)
        launch(function, (rows,), threads, (gate_up, *results))
    return builder.finish()


def elementwise(config: Elementwise) -> tvm.tirx.PrimFunc:
    """a f32 [T,K], [b f32 [T,K]] -> out f32 [T,K].

    Raises:
        UnsupportedError: No such operation; the message lists those that exist.
    """
    width, threads = config.width, _threads(config.width)
    binary = config.operation in _BINARY
    operation = _operation(config.operation, {**_BINARY, **_UNARY}, "Elementwise")
    with kernel(f"elementwise_{config.operation}") as builder:
        rows = builder.size()
        inputs = [builder.argument("a", (rows, width))]
        if binary:
            inputs.append(builder.argument("b", (rows, width)))
            function = template("binary", operation, width, threads)
        else:
            constant = float_bits(config.constant)
            function = template("unary", operation, width, threads, constant)
        out = builder.argument("out", (rows, width))
        launch(function, (rows,), threads, (*inputs, out))
    return builder.finish()


def _threads(width: int) -> int:
    """Threads of a block that computes a row: a power of two, so that warps are whole."""
    wanted = 1 << (-(-width // _VALUES) - 1).bit_length()
    return max(_LEAST_THREADS, min(_MOST_THREADS, wanted))


def _operation(name: str, known: dict[str, str], where: str) -> str:
    if name not in known:
        raise UnsupportedError(
            f"operation {name!r} has no CUDA kernel",
            where=where,
            hint=f"one of {', '.join(known)}",
        )
    return f"optc::{known[name]}"
