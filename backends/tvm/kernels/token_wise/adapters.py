"""LoRA adapters by row: shrink x to the rank of each row's adapter, then grow and add to y.

Every value is one sum in a fixed order over its own row, so that a row's bits do not depend on
its batch mates; rows without an adapter keep the bits of y.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    Register,
    bind,
    fma,
    for_rows,
    kernel,
    load,
    register,
    round_up,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import load_part, store_part
from optc.backends.tvm.kernels.token_wise.adapter_tiles import Grow, Shrink

#: Sums of a vector in flight, which hide the latency of a multiply-add.
_PARTIALS = 4
#: Columns of y that one task computes.
_COLUMNS = LANES * _PARTIALS


@dataclass(frozen=True)
class AdapterShrink:
    """x [T, k] to width [T, width]: ``width`` is parts times rank, a multiple of 16.

    ``quantized``: x is int8 values of width ``round_up(k, 32)`` and a scale for each row; of 16
    ``bits``, two rows for each.
    """

    k: int
    width: int
    quantized: bool
    bits: int = 8


@dataclass(frozen=True)
class AdapterGrow:
    """[T, parts * rank] to y [T, n]: part i gives the columns from ``starts[i]`` to the next."""

    n: int
    rank: int
    starts: tuple[int, ...]


def adapter_shrink(config: AdapterShrink, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,k] (or q i8 [T,kp], s f32 [T]; of 16 bits 2 T rows), adapters i32 [T],
    a f32 [M,k,width] -> h [T,width].

    Rows of slot -1 are not written. Every instruction set runs the same operations but AMX
    (`optc.backends.tvm.kernels.token_wise.adapter_tiles`).
    """
    k, width = config.k, config.width
    with kernel("adapter_shrink") as builder:
        rows, slots = builder.size(), builder.size()
        columns = round_up(k, 32) if config.quantized else k
        halves = config.bits // 8
        dtype = "int8" if config.quantized else "float32"
        x = builder.argument("x", (rows * halves, columns), dtype)
        scale = builder.argument("scale", (rows * halves,)) if config.quantized else None
        adapters = builder.argument("adapters", (rows,), "int32")
        a = builder.argument("a", (slots, k, width))
        out = builder.argument("out", (rows, width))
        parallel = rows * k * width > SERIAL_WORK
        vectors = width // LANES

        def body(task: Expr) -> None:
            row, first = bind(task // vectors), bind(task % vectors * LANES)
            slot = bind(adapters[row])
            with tir.If(slot >= 0), tir.Then():
                total = _shrunk(x, a, row * halves, slot, first, k)
                if scale is not None:
                    total = total * splat(scale[row * halves])
                if scale is not None and halves > 1:
                    low = _shrunk(x, a, row * halves + 1, slot, first, k)
                    total = bind(total) + low * splat(scale[row * halves + 1])
                store(out, total, row, first)

        if isa.amx:
            Shrink(x, scale, halves, adapters, a, out).emit(parallel)
        else:
            for_rows(rows * vectors, parallel, body)
    return builder.finish()


def _shrunk(x: Expr, a: Expr, row: Expr, slot: Expr, first: Expr, k: int) -> Expr:
    """One vector of ``x[row] @ a[slot]``: four partial sums over k in turn."""
    partials = [register(0.0) for _ in range(_PARTIALS)]

    def add(partial: Register, at: Expr | int) -> None:
        value = splat(tir.cast(x[row, at], "float32"))
        partial.set(fma(value, load(a, slot, at, first), partial.get()))

    rounds, left = divmod(k, _PARTIALS)
    with tir.serial(0, rounds) as i:
        for j, partial in enumerate(partials):
            add(partial, i * _PARTIALS + j)
    for j in range(left):
        add(partials[j], rounds * _PARTIALS + j)
    first_two = partials[0].get() + partials[1].get()
    return first_two + (partials[2].get() + partials[3].get())


def adapter_grow(config: AdapterGrow, isa: Isa) -> tvm.tirx.PrimFunc:
    """y f32 [T,n], h f32 [T,parts*rank], adapters i32 [T], b f32 [M,rank,n] -> out [T,n].

    ``isa`` as above.
    """
    n, rank, starts = config.n, config.rank, tuple(config.starts)
    with kernel("adapter_grow") as builder:
        rows, slots = builder.size(), builder.size()
        y = builder.argument("y", (rows, n))
        h = builder.argument("h", (rows, rank * len(starts)))
        adapters = builder.argument("adapters", (rows,), "int32")
        b = builder.argument("b", (slots, rank, n))
        out = builder.argument("out", (rows, n))
        parallel = rows * n * rank > SERIAL_WORK
        if isa.amx:
            Grow(y, h, adapters, b, out).emit(starts, parallel)
        else:
            _grow(config, rows, parallel, (y, h, b, out), adapters)
    return builder.finish()


def _grow(
    config: AdapterGrow, rows: Expr, parallel: Expr, buffers: tuple[Expr, ...], adapters: Expr
) -> None:
    """All rows by vectors; ``buffers`` are y, h, b and out."""
    n, rank, starts = config.n, config.rank, tuple(config.starts)
    y, h, b, out = buffers
    for part, (start, stop) in enumerate(zip(starts, (*starts[1:], n), strict=True)):
        blocks, rest = divmod(stop - start, _COLUMNS)
        operands = _Operands(y, h, b, out, part * rank, rank)

        def whole(task: Expr, blocks: int = blocks, start: int = start,
                  operands: _Operands = operands) -> None:  # fmt: skip
            row, first = bind(task // blocks), bind(task % blocks * _COLUMNS + start)
            operands.grow(row, bind(adapters[row]), first, [LANES] * _PARTIALS)

        if blocks:
            for_rows(rows * blocks, parallel, whole)
        if rest:
            counts = [min(LANES, rest - i) for i in range(0, rest, LANES)]
            with tir.serial(0, rows) as row:
                operands.grow(row, bind(adapters[row]), stop - rest, counts)


@dataclass(frozen=True)
class _Operands:
    """The operands of one part of a row; its ``rank`` values of h start at ``offset``."""

    y: Expr
    h: Expr
    b: Expr
    out: Expr
    offset: int
    rank: int

    def grow(self, row: Expr, slot: Expr, first: Expr | int, counts: list[int]) -> None:
        """Vectors of ``y[row] + h[row] @ b[slot]`` from column ``first`` on."""
        columns = [first + i * LANES for i in range(len(counts))]
        sums = [register(0.0) for _ in counts]
        with tir.If(slot >= 0), tir.Then(), tir.serial(0, self.rank) as j:
            value = bind(splat(self.h[row, self.offset + j]))
            for total, column, count in zip(sums, columns, counts, strict=True):
                loaded = load_part(self.b, count, slot, j, column)
                total.set(fma(value, loaded, total.get()))
        for total, column, count in zip(sums, columns, counts, strict=True):
            grown = load_part(self.y, count, row, column) + total.get()
            store_part(self.out, grown, count, row, column)
