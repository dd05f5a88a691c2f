"""Rows side by side, as a convolution along a sequence reads them."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    bind,
    for_rows,
    kernel,
    splat,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class WindowRows:
    """Windows of ``kernel`` rows of ``width`` values, ``stride`` rows apart, the first one
    ``before`` rows before its sequence. Of ``length`` rows a sequence becomes ``windows``."""

    width: int
    kernel: int
    stride: int
    before: int
    length: int
    windows: int


def window_rows(config: WindowRows, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [B·length,D] -> out f32 [B·windows,kernel·D]: row w of a sequence has its rows
    w·stride - before and those behind it, zeros where there are none.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width, windows = config.width, config.windows
    with kernel("window_rows") as builder:
        rows, total = builder.size(), builder.size()
        x = builder.argument("x", (total, width))
        out = builder.argument("out", (rows, config.kernel * width))

        def copy(row: Expr, source: Expr | None, start: int) -> None:
            def write(offset: Expr | int, count: int) -> None:
                value = splat(0.0) if source is None else load_part(x, count, source, offset)
                store_part(out, value, count, row, start + offset)

            for_vectors(width, write)

        def body(row: Expr) -> None:
            sequence, window = tir.floordiv(row, windows), tir.floormod(row, windows)
            first = bind(window * config.stride - config.before)
            begin = bind(sequence * config.length)
            for j in range(config.kernel):
                place = bind(first + j)
                with tir.If(tir.And(place >= 0, place < config.length)):
                    with tir.Then():
                        copy(row, bind(begin + place), j * width)
                    with tir.Else():
                        copy(row, None, j * width)

        for_rows(rows, rows * config.kernel * width > SERIAL_WORK, body)
    return builder.finish()
