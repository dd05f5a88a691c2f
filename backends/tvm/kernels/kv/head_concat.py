"""Heads of two values side by side, such as keys whose rotary columns all heads share."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class HeadConcat:
    """``heads`` heads of ``first`` columns of a and then ``second`` of b; where they are
    ``shared``, a has one head."""

    heads: int
    first: int
    second: int
    shared: bool


def head_concat(config: HeadConcat, isa: Isa) -> tvm.tirx.PrimFunc:
    """a f32 [T,F] (shared) or [T,H*F], b f32 [T,H*S] -> out f32 [T,H*(F+S)].

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    heads, each = config.heads, config.first + config.second
    width = config.first * (1 if config.shared else heads)
    with kernel("head_concat") as builder:
        rows = builder.size()
        a = builder.argument("a", (rows, width))
        b = builder.argument("b", (rows, heads * config.second))
        out = builder.argument("out", (rows, heads * each))

        def copy(source: Expr, row: Expr, start: Expr, to: Expr, size: int) -> None:
            for_vectors(
                size,
                lambda o, n: store_part(out, load_part(source, n, row, start + o), n, row, to + o),
            )

        def body(row: Expr) -> None:
            with tir.serial(0, heads) as head:
                to = bind(head * each)
                start = tvm.tirx.IntImm("int32", 0) if config.shared else head * config.first
                copy(a, row, start, to, config.first)
                copy(b, row, head * config.second, to + config.first, config.second)

        for_rows(rows, rows * (heads * each) > SERIAL_WORK, body)
    return builder.finish()
