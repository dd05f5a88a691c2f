"""Gated activations: act(gate) * up, plain or clamped, as float32 or quantized for the next
matmul."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import activation, silu
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    bind,
    for_rows,
    kernel,
    like,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.kernels.token_wise.quantize import quantize_values, quantized_arguments
from optc.errors import UnsupportedError

#: An activation costs about as much as this many plain element operations.
_COST = 8


@dataclass(frozen=True)
class GatedActivation:
    """A gated activation.

    Attributes:
        width: F, values of the gate and of the result; the input has 2F.
        activation: ``silu``, ``gelu`` or ``gelu_tanh``.
        quantized: Write q, s, qsum instead of float32.
        alpha: Factor of the gate inside the sigmoid of ``silu``.
        limit: The gate is held below it, and up within it on both sides; 0: neither is.
        up_shift: Added to up.
        bits: Of q, 8 or 16.
        hadamard: Channels of a block of the rotation before it is quantized; 0 is none.
    """

    width: int
    activation: str
    quantized: bool = False
    alpha: float = 1.0
    limit: float = 0.0
    up_shift: float = 0.0
    bits: int = 8
    hadamard: int = 0

    def __post_init__(self) -> None:
        if self.limit < 0 or (self.alpha != 1 and self.activation != "silu"):
            raise UnsupportedError(
                f"no {self.activation} gate has limit {self.limit} and alpha {self.alpha}",
                where="GatedActivation",
                hint="alpha is silu's only, and a limit is above 0",
            )

    def gate(self, value: Expr) -> Expr:
        """activation(gate)."""
        held = tir.min(value, like(self.limit, value)) if self.limit else value
        if self.alpha == 1:
            return activation(self.activation)(held)
        return silu(held, self.alpha)

    def up(self, value: Expr) -> Expr:
        """The factor that the gate is multiplied by."""
        if self.limit:
            low, high = like(-self.limit, value), like(self.limit, value)
            value = bind(tir.max(tir.min(value, high), low))
        return value + like(self.up_shift, value) if self.up_shift else value


def gated_activation(config: GatedActivation, isa: Isa) -> tvm.tirx.PrimFunc:
    """gate_up f32 [T,2F] (gate first) -> out f32 [T,F], or q i8 [T,Fp], s f32 [T],
    qsum i32 [T,Fp/32].

    ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: The activation is not known.
    """
    width = config.width
    activation(config.activation)  # known
    with kernel("gated_activation") as builder:
        rows = builder.size()
        gate_up = builder.argument("gate_up", (rows, 2 * width))
        quantized = (
            quantized_arguments(builder, rows, width, config.bits) if config.quantized else None
        )
        out = None if config.quantized else builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            def gated(offset: Expr | int, count: int) -> Expr:
                gate = config.gate(load_part(gate_up, count, row, offset))
                return bind(gate * config.up(load_part(gate_up, count, row, width + offset)))

            if quantized is not None:
                quantize_values(gated, quantized, row, width, config.hadamard)
            else:
                for_vectors(width, lambda o, count: store_part(out, gated(o, count), count, row, o))

        for_rows(rows, rows * (width * _COST) > SERIAL_WORK, body)
    return builder.finish()
