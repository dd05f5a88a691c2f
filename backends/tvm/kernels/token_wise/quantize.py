"""Activations to int8, or to int16 as two rows of int8, one scale per token.

A row of 16 bits is q = 255 high + low. The rows of a token follow one another, the high one first,
and have scales of their own, 255 s and s, so that matmuls by int8 take them as any two rows.
"""

from __future__ import annotations

from collections.abc import Callable
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
    absolute,
    bind,
    for_rows,
    intrinsic,
    kernel,
    load,
    round_even,
    round_up,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, reduce_row
from optc.backends.tvm.kernels.token_wise.hadamard import COST as ROTATION_COST
from optc.backends.tvm.kernels.token_wise.hadamard import rotate_row
from optc.ir.functions.quantized import HIGH, LARGEST

#: Values whose sum is stored, and the multiple that a quantized row is padded to.
SUM_BLOCK = 32
#: Quantizing a value costs about as much as this many plain element operations: measured, two
#: threads are faster from some ten thousand values on.
COST = 3


@dataclass(frozen=True)
class Quantize:
    """Quantization of rows.

    Attributes:
        width: K, values of a row.
        bits: 8 or 16.
        hadamard: Channels of a block of the rotation before it; 0 is none.
    """

    width: int
    bits: int = 8
    hadamard: int = 0


@dataclass(frozen=True)
class QuantizedRows:
    """The three output buffers of a kernel that quantizes.

    Attributes:
        q: int8 [T, Kp], Kp = K rounded up to 32, zero beyond K; of 16 bits [2 T, Kp].
        scale: float32, as many.
        sums: int32 [T or 2 T, Kp / 32], sums of each 32 values of q.
        bits: 8 or 16.
    """

    q: Expr
    scale: Expr
    sums: Expr
    bits: int


def quantized_arguments(
    builder: KernelBuilder, rows: Expr, width: int, bits: int = 8
) -> QuantizedRows:
    """Declare the outputs q, s, qsum of ``rows`` x ``width`` values as the next arguments."""
    padded, rows = round_up(width, SUM_BLOCK), rows * (bits // 8)
    return QuantizedRows(
        builder.argument("q", (rows, padded), "int8"),
        builder.argument("s", (rows,)),
        builder.argument("qsum", (rows, padded // SUM_BLOCK), "int32"),
        bits,
    )


def take_maximum(partial: Register, values: Expr) -> None:
    """Fold the magnitudes of ``values`` into the largest so far."""
    partial.set(tir.max(partial.get(), absolute(values)))


def quantize_row(
    read: Callable[[Expr | int, int], Expr],
    largest: Expr,
    out: QuantizedRows,
    row: Expr,
    width: int,
) -> None:
    """Write one row: s = largest / 127 (1 if zero), q = round-half-even(x / s), sums of 32; of 16
    bits s = largest / 32512, and two rows.

    ``read(offset, count)`` gives 16 values, zero from ``count`` on. The division is a true one:
    multiplying by a reciprocal would round some values to the other neighbour.
    """
    steps = tir.float32(LARGEST[out.bits])
    scale = bind(tir.Select(largest > tir.float32(0), largest / steps, tir.float32(1)))
    halves = out.bits // 8
    first = row * halves
    store(out.scale, scale * tir.float32(HIGH if halves > 1 else 1), first)
    if halves > 1:
        store(out.scale, scale, first + 1)
    divisor = bind(splat(scale))

    def write_half(
        half: int, block: Expr | int, offsets: list[Expr | int], values: list[Expr]
    ) -> None:
        for offset, part in zip(offsets, values, strict=True):
            store(out.q, tir.cast(part, f"int8x{LANES}"), first + half, offset)
        total = intrinsic("llvm.vector.reduce.add", "int32", values[0] + values[1])
        store(out.sums, total, first + half, block)

    def write(block: Expr | int, counts: tuple[int, ...]) -> None:
        offsets = [block * SUM_BLOCK + part * LANES for part in range(len(counts))]
        whole = [
            bind(tir.cast(round_even(read(offset, count) / divisor), f"int32x{LANES}"))
            if count
            else splat(0, "int32")
            for offset, count in zip(offsets, counts, strict=True)
        ]
        if halves == 1:
            write_half(0, block, offsets, whole)
            return
        high = [bind(_high(values)) for values in whole]
        low = [bind(v - h * splat(HIGH, "int32")) for v, h in zip(whole, high, strict=True)]
        write_half(0, block, offsets, high)
        write_half(1, block, offsets, low)

    blocks, rest = divmod(width, SUM_BLOCK)
    if blocks:
        with tir.serial(0, blocks) as block:
            write(block, (LANES, LANES))
    if rest:
        write(blocks, (min(rest, LANES), max(rest - LANES, 0)))


def _high(values: Expr) -> Expr:
    """The nearest integer to values / 255: no value lies halfway, and none so near to it that the
    rounding of the product would matter."""
    ratio = tir.cast(values, f"float32x{LANES}") * splat(1 / HIGH)
    return tir.cast(round_even(ratio), f"int32x{LANES}")


def quantize_values(
    compute: Callable[[Expr | int, int], Expr],
    out: QuantizedRows,
    row: Expr,
    width: int,
    hadamard: int,
) -> None:
    """Quantize a row of computed values, rotated in blocks of ``hadamard`` channels unless that is
    0; ``compute(offset, count)`` runs once for each vector."""
    values = scratch((round_up(width, LANES),))
    read = compute
    if hadamard:
        for_vectors(width, lambda offset, count: store(values, compute(offset, count), offset))
        rotate_row(values, width, hadamard)

        def read(offset: Expr | int, count: int) -> Expr:
            return load(values, offset)

    def take(partial: Register, offset: Expr | int, count: int) -> None:
        value = bind(read(offset, count))
        if not hadamard:
            store(values, value, offset)
        take_maximum(partial, value)

    largest = reduce_row(width, 0.0, take, tir.max)
    quantize_row(lambda offset, count: load(values, offset), largest, out, row, width)


def quantize(config: Quantize, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,K] -> q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32]; of 16 bits 2 T rows.

    s = max|x| / 127 (1 if the row is zero), q = round-half-even(x / s), exactly as NumPy computes
    them in float32. ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("quantize") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        out = quantized_arguments(builder, rows, width, config.bits)

        def body(row: Expr) -> None:
            def read(offset: Expr | int, count: int) -> Expr:
                return load_part(x, count, row, offset)

            def take(partial: Register, offset: Expr | int, count: int) -> None:
                take_maximum(partial, read(offset, count))

            if config.hadamard:
                quantize_values(read, out, row, width, config.hadamard)
                return
            quantize_row(read, reduce_row(width, 0.0, take, tir.max), out, row, width)

        cost = COST * config.bits // 8 + (ROTATION_COST if config.hadamard else 0)
        for_rows(rows, rows * (width * cost) > SERIAL_WORK, body)
    return builder.finish()
