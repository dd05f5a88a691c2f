"""Activations to int8, one scale per token."""

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
from optc.backends.tvm.kernels.dsl.vectors import load_part, reduce_row

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
    """

    width: int


@dataclass(frozen=True)
class QuantizedRows:
    """The three output buffers of a kernel that quantizes.

    Attributes:
        q: int8 [T, Kp], Kp = K rounded up to 32, zero beyond K.
        scale: float32 [T].
        sums: int32 [T, Kp / 32], sums of each 32 values of q.
    """

    q: Expr
    scale: Expr
    sums: Expr


def quantized_arguments(builder: KernelBuilder, rows: Expr, width: int) -> QuantizedRows:
    """Declare the outputs q, s, qsum of ``rows`` x ``width`` values as the next arguments."""
    padded = round_up(width, SUM_BLOCK)
    return QuantizedRows(
        builder.argument("q", (rows, padded), "int8"),
        builder.argument("s", (rows,)),
        builder.argument("qsum", (rows, padded // SUM_BLOCK), "int32"),
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
    """Write one row: s = largest / 127 (1 if zero), q = round-half-even(x / s), sums of 32.

    ``read(offset, count)`` gives 16 values, zero from ``count`` on. The division is a true one:
    multiplying by a reciprocal would round some values to the other neighbour.
    """
    scale = bind(tir.Select(largest > tir.float32(0), largest / tir.float32(127), tir.float32(1)))
    store(out.scale, scale, row)
    divisor = bind(splat(scale))

    def write(block: Expr | int, counts: tuple[int, ...]) -> None:
        offsets = [block * SUM_BLOCK + part * LANES for part in range(len(counts))]
        whole = [
            bind(tir.cast(round_even(read(offset, count) / divisor), f"int32x{LANES}"))
            if count
            else splat(0, "int32")
            for offset, count in zip(offsets, counts, strict=True)
        ]
        for offset, values in zip(offsets, whole, strict=True):
            store(out.q, tir.cast(values, f"int8x{LANES}"), row, offset)
        total = intrinsic("llvm.vector.reduce.add", "int32", whole[0] + whole[1])
        store(out.sums, total, row, block)

    blocks, rest = divmod(width, SUM_BLOCK)
    if blocks:
        with tir.serial(0, blocks) as block:
            write(block, (LANES, LANES))
    if rest:
        write(blocks, (min(rest, LANES), max(rest - LANES, 0)))


def quantize_values(
    compute: Callable[[Expr | int, int], Expr], out: QuantizedRows, row: Expr, width: int
) -> None:
    """Quantize a row of computed values; ``compute(offset, count)`` runs once for each vector."""
    values = scratch((round_up(width, LANES),))

    def take(partial: Register, offset: Expr | int, count: int) -> None:
        value = bind(compute(offset, count))
        store(values, value, offset)
        take_maximum(partial, value)

    largest = reduce_row(width, 0.0, take, tir.max)
    quantize_row(lambda offset, count: load(values, offset), largest, out, row, width)


def quantize(config: Quantize, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,K] -> q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32].

    s = max|x| / 127 (1 if the row is zero), q = round-half-even(x / s), exactly as NumPy computes
    them in float32. ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("quantize") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        out = quantized_arguments(builder, rows, width)

        def body(row: Expr) -> None:
            largest = reduce_row(
                width,
                0.0,
                lambda partial, offset, count: take_maximum(
                    partial, load_part(x, count, row, offset)
                ),
                tir.max,
            )
            quantize_row(
                lambda offset, count: load_part(x, count, row, offset), largest, out, row, width
            )

        for_rows(rows, rows * (width * COST) > SERIAL_WORK, body)
    return builder.finish()
