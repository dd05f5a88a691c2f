"""RMS normalization, fused with the residual before and the quantization after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    Register,
    bind,
    fma,
    for_rows,
    kernel,
    splat,
    square_root,
)
from optc.backends.tvm.kernels.dsl.vectors import (
    for_vectors,
    load_part,
    reduce_row,
    store_part,
)
from optc.backends.tvm.kernels.token_wise.quantize import (
    COST,
    quantize_values,
    quantized_arguments,
)


@dataclass(frozen=True)
class RMSNorm:
    """RMS normalization of rows.

    Attributes:
        width: K.
        epsilon: Added to the mean square.
        residual: Normalize residual + x, and write that sum as well.
        quantized: Write q, s, qsum instead of float32.
        bits: Of q, 8 or 16.
        hadamard: Channels of a block of the rotation before it is quantized; 0 is none.
    """

    width: int
    epsilon: float
    residual: bool = False
    quantized: bool = False
    bits: int = 8
    hadamard: int = 0


@dataclass(frozen=True)
class HeadRMSNorm:
    """RMS normalization of each of ``heads`` runs of ``dim`` values with one shared scale."""

    heads: int
    dim: int
    epsilon: float


def add_product(partial: Register, a: Expr, b: Expr) -> None:
    """Accumulate ``a * b`` with one rounding."""
    partial.set(fma(a, b, partial.get()))


def inverse_rms(sum_of_squares: Expr, width: int, epsilon: float) -> Expr:
    """``1 / sqrt(mean square + epsilon)`` of a scalar sum."""
    mean = sum_of_squares / tir.float32(width)
    return bind(tir.float32(1) / square_root(mean + tir.float32(epsilon)))


def rms_norm(config: RMSNorm, isa: Isa) -> tvm.tirx.PrimFunc:
    """[residual f32 [T,K]], x f32 [T,K], scale f32 [K] -> [sum f32 [T,K]], out f32 [T,K] or
    q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32].

    out = v / sqrt(mean(v**2) + epsilon) * scale, where v is x or residual + x. ``isa`` changes
    nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("rms_norm") as builder:
        rows = builder.size()
        residual = builder.argument("residual", (rows, width)) if config.residual else None
        x = builder.argument("x", (rows, width))
        scale = builder.argument("scale", (width,))
        total = builder.argument("sum", (rows, width)) if config.residual else None
        quantized = (
            quantized_arguments(builder, rows, width, config.bits) if config.quantized else None
        )
        out = None if config.quantized else builder.argument("out", (rows, width))

        def squares(row: Expr) -> Expr:
            def take(partial: Register, offset: Expr | int, count: int) -> None:
                value = bind(load_part(x, count, row, offset))
                if residual is not None:
                    value = bind(load_part(residual, count, row, offset) + value)
                    store_part(total, value, count, row, offset)
                add_product(partial, value, value)

            return reduce_row(width, 0.0, take, lambda a, b: a + b)

        def body(row: Expr) -> None:
            factor = bind(splat(inverse_rms(squares(row), width, config.epsilon)))
            source = x if total is None else total

            def normed(offset: Expr | int, count: int) -> Expr:
                value = bind(load_part(source, count, row, offset) * factor)
                return bind(value * load_part(scale, count, offset))

            if quantized is not None:
                quantize_values(normed, quantized, row, width, config.hadamard)
            else:
                for_vectors(
                    width, lambda o, count: store_part(out, normed(o, count), count, row, o)
                )

        cost = width * (1 + COST if config.quantized else 1)
        for_rows(rows, rows * cost > SERIAL_WORK, body)
    return builder.finish()


def head_rms_norm(config: HeadRMSNorm, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,n*d], scale f32 [d] -> out f32 [T,n*d], each run of d values normalized alone.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width, dim = config.heads * config.dim, config.dim
    with kernel("head_rms_norm") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        scale = builder.argument("scale", (dim,))
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            with tir.serial(0, config.heads) as head:
                normalize_head(
                    lambda o, count: load_part(x, count, row, head * dim + o),
                    lambda value, o, count: store_part(out, value, count, row, head * dim + o),
                    scale,
                    dim,
                    config.epsilon,
                )

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


def normalize_head(
    read: Callable[[Expr | int, int], Expr],
    write: Callable[[Expr, Expr | int, int], None],
    scale: Expr,
    dim: int,
    epsilon: float,
) -> None:
    """RMS-normalize the ``dim`` values that ``read(offset, count)`` gives, times ``scale``."""

    def square(partial: Register, offset: Expr | int, count: int) -> None:
        value = bind(read(offset, count))
        add_product(partial, value, value)

    squares = reduce_row(dim, 0.0, square, lambda a, b: a + b)
    factor = bind(splat(inverse_rms(squares, dim, epsilon)))

    def scaled(offset: Expr | int, count: int) -> None:
        value = bind(read(offset, count) * factor)
        write(value * load_part(scale, count, offset), offset, count)

    for_vectors(dim, scaled)
