"""Layer normalization, fused with the residual before and the quantization after."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    KernelBuilder,
    Register,
    bind,
    fma,
    for_rows,
    kernel,
    load,
    round_up,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import (
    first_lanes,
    for_vectors,
    load_part,
    reduce_row,
    store_part,
)
from optc.backends.tvm.kernels.token_wise.norm import add_product, inverse_rms
from optc.backends.tvm.kernels.token_wise.quantize import (
    COST,
    QuantizedRows,
    quantize_values,
    quantized_arguments,
)


@dataclass(frozen=True)
class LayerNorm:
    """Layer normalization of rows.

    Attributes:
        width: K.
        epsilon: Added to the variance.
        bias: One is added behind the scale.
        residual: Normalize residual + x.
        sum: Write that sum, too.
        plain: Write the result as float32.
        quantized: Write q, s, qsum of it.
        hadamard: Channels of a block of the rotation before it is quantized; 0 is none.
        bits: Of q, 8 or 16.
    """

    width: int
    epsilon: float
    bias: bool = True
    residual: bool = False
    sum: bool = False
    plain: bool = True
    quantized: bool = False
    hadamard: int = 0
    bits: int = 8


@dataclass(frozen=True)
class _Operands:
    """The arguments of a call; None where the configuration has none."""

    residual: Expr | None
    x: Expr
    scale: Expr
    bias: Expr | None
    sum: Expr | None
    out: Expr | None
    quantized: QuantizedRows | None

    @classmethod
    def declare(cls, builder: KernelBuilder, config: LayerNorm) -> _Operands:
        """Declare them in order."""
        rows, width = builder.size(), config.width

        def given(wanted: bool, name: str, *shape: Expr | int) -> Expr | None:
            return builder.argument(name, shape) if wanted else None

        return cls(
            given(config.residual, "residual", rows, width),
            builder.argument("x", (rows, width)),
            builder.argument("scale", (width,)),
            given(config.bias, "bias", width),
            given(config.sum, "sum", rows, width),
            given(config.plain, "out", rows, width),
            quantized_arguments(builder, rows, width, config.bits) if config.quantized else None,
        )


def layer_norm(config: LayerNorm, isa: Isa) -> tvm.tirx.PrimFunc:
    """[residual f32 [T,K]], x f32 [T,K], scale f32 [K], [bias f32 [K]] -> [sum f32 [T,K]],
    [out f32 [T,K]], [q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32]].

    out = (v - mean(v)) / sqrt(mean((v - mean(v))**2) + epsilon) * scale [+ bias], where v is x or
    residual + x; q, s and qsum are of it. ``isa`` changes nothing: every instruction set runs the
    same operations.
    """
    width = config.width
    with kernel("layer_norm") as builder:
        given = _Operands.declare(builder, config)
        rows = given.x.shape[0]

        def body(row: Expr) -> None:
            values = scratch((round_up(width, LANES),))
            mean = _mean(given, values, row, width)

            def square(partial: Register, offset: Expr | int, count: int) -> None:
                value = bind(load(values, offset) - mean)
                if count < LANES:  # the lanes beyond the row hold -mean
                    value = bind(tir.Select(first_lanes(count), value, splat(0.0)))
                add_product(partial, value, value)

            squares = reduce_row(width, 0.0, square, lambda a, b: a + b)
            factor = bind(splat(inverse_rms(squares, width, config.epsilon)))

            def normed(offset: Expr | int, count: int) -> Expr:
                value = bind(bind(load(values, offset) - mean) * factor)
                weight = load_part(given.scale, count, offset)
                if given.bias is None:
                    value = bind(value * weight)
                else:
                    value = bind(fma(value, weight, load_part(given.bias, count, offset)))
                if given.out is not None:
                    store_part(given.out, value, count, row, offset)
                return value

            if given.quantized is not None:
                quantize_values(normed, given.quantized, row, width, config.hadamard)
            else:

                def write(offset: Expr | int, count: int) -> None:
                    normed(offset, count)

                for_vectors(width, write)

        cost = width * (1 + COST if config.quantized else 1)
        for_rows(rows, rows * cost > SERIAL_WORK, body)
    return builder.finish()


def _mean(given: _Operands, values: Expr, row: Expr, width: int) -> Expr:
    """The mean of a row in all lanes; the row itself goes into ``values``, zeros behind it."""

    def add(partial: Register, offset: Expr | int, count: int) -> None:
        value = bind(load_part(given.x, count, row, offset))
        if given.residual is not None:
            value = bind(load_part(given.residual, count, row, offset) + value)
        if given.sum is not None:
            store_part(given.sum, value, count, row, offset)
        store(values, value, offset)
        partial.set(partial.get() + value)

    total = reduce_row(width, 0.0, add, lambda a, b: a + b)
    return bind(splat(total / tir.float32(width)))
