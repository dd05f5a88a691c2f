"""Gated activations: act(gate) * up, as float32 or quantized for the next matmul."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import activation
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.kernels.token_wise.quantize import quantize_values, quantized_arguments

#: An activation costs about as much as this many plain element operations.
_COST = 8


@dataclass(frozen=True)
class GatedActivation:
    """A gated activation.

    Attributes:
        width: F, values of the gate and of the result; the input has 2F.
        activation: ``silu``, ``gelu`` or ``gelu_tanh``.
        quantized: Write q, s, qsum instead of float32.
    """

    width: int
    activation: str
    quantized: bool = False


def gated_activation(config: GatedActivation, isa: Isa) -> tvm.tirx.PrimFunc:
    """gate_up f32 [T,2F] (gate first) -> out f32 [T,F], or q i8 [T,Fp], s f32 [T],
    qsum i32 [T,Fp/32].

    ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: The activation is not known.
    """
    width, function = config.width, activation(config.activation)
    with kernel("gated_activation") as builder:
        rows = builder.size()
        gate_up = builder.argument("gate_up", (rows, 2 * width))
        quantized = quantized_arguments(builder, rows, width) if config.quantized else None
        out = None if config.quantized else builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            def gated(offset: Expr | int, count: int) -> Expr:
                gate = function(load_part(gate_up, count, row, offset))
                return bind(gate * load_part(gate_up, count, row, width + offset))

            if quantized is not None:
                quantize_values(gated, quantized, row, width)
            else:
                for_vectors(width, lambda o, count: store_part(out, gated(o, count), count, row, o))

        for_rows(rows, rows * (width * _COST) > SERIAL_WORK, body)
    return builder.finish()
