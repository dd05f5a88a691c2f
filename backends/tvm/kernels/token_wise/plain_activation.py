"""Activations without a gate, quantized for the next matmul."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import activation
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel
from optc.backends.tvm.kernels.dsl.vectors import load_part
from optc.backends.tvm.kernels.token_wise.quantize import quantize_values, quantized_arguments

#: An activation and its rounding cost about as much as this many plain element operations.
_COST = 8


@dataclass(frozen=True)
class ActivationQuantize:
    """An activation and its quantization.

    Attributes:
        width: K.
        activation: ``silu``, ``gelu`` or ``gelu_tanh``.
        bits: Of q, 8 or 16.
        hadamard: Channels of a block of the rotation before it is quantized; 0 is none.
    """

    width: int
    activation: str
    bits: int = 8
    hadamard: int = 0


def activation_quantize(config: ActivationQuantize, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,K] -> q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32] of activation(x).

    ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: The activation is not known.
    """
    active = activation(config.activation)
    with kernel("activation_quantize") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, config.width))
        out = quantized_arguments(builder, rows, config.width, config.bits)

        def body(row: Expr) -> None:
            def compute(offset: Expr | int, count: int) -> Expr:
                return bind(active(load_part(x, count, row, offset)))

            quantize_values(compute, out, row, config.width, config.hadamard)

        for_rows(rows, rows * (config.width * _COST) > SERIAL_WORK, body)
    return builder.finish()
