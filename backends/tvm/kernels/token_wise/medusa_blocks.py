"""The residual blocks of Medusa's heads."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import activation
from optc.backends.tvm.kernels.dsl.script import Expr, kernel
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class ResidualHeads:
    """``heads`` blocks K of ``width`` D."""

    heads: int
    width: int


def residual_heads(config: ResidualHeads, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [H,D], y f32 [H,K*D] -> out f32 [K*H,D]: x + silu(y), the heads of a row in order.

    A few rows a step, so it is serial. ``isa`` changes nothing: every instruction set runs the
    same operations.
    """
    heads, width, silu = config.heads, config.width, activation("silu")
    with kernel("residual_heads") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        y = builder.argument("y", (rows, heads * width))
        out = builder.argument("out", (rows * heads, width))
        with tir.grid(rows, heads) as (row, head):

            def add(offset: Expr | int, count: int, row: Expr = row, head: Expr = head) -> None:
                value = silu(load_part(y, count, row, head * width + offset))
                value = load_part(x, count, row, offset) + value
                store_part(out, value, count, row * heads + head, offset)

            for_vectors(width, add)
    return builder.finish()
