"""Heads as rows of matmuls by experts, of which each head is one, and back."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel, store
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class SplitHeads:
    """``heads`` heads of ``width`` columns."""

    heads: int
    width: int


@dataclass(frozen=True)
class MergeHeads(SplitHeads):
    """``heads`` heads of ``width`` columns, back in one row."""


def split_heads(config: SplitHeads, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,H*D] -> out f32 [M,D], M = H T, a token's heads one after the other; heads i32
    [T,H], the number of each.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    heads, width = config.heads, config.width
    with kernel("split_heads") as builder:
        tokens, rows = builder.size(), builder.size()
        x = builder.argument("x", (tokens, heads * width))
        out = builder.argument("out", (rows, width))
        numbers = builder.argument("heads", (tokens, heads), "int32")

        def body(token: Expr) -> None:
            with tir.serial(0, heads) as head:
                store(numbers, head, token, head)
                start, row = bind(head * width), bind(token * heads + head)
                for_vectors(
                    width,
                    lambda o, n: store_part(out, load_part(x, n, token, start + o), n, row, o),
                )

        for_rows(tokens, tokens * (heads * width) > SERIAL_WORK, body)
    return builder.finish()


def merge_heads(config: MergeHeads, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [M,D], M = H T, a token's heads one after the other -> out f32 [T,H*D].

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    heads, width = config.heads, config.width
    with kernel("merge_heads") as builder:
        tokens, rows = builder.size(), builder.size()
        x = builder.argument("x", (rows, width))
        out = builder.argument("out", (tokens, heads * width))

        def body(token: Expr) -> None:
            with tir.serial(0, heads) as head:
                start, row = bind(head * width), bind(token * heads + head)
                for_vectors(
                    width,
                    lambda o, n: store_part(out, load_part(x, n, row, o), n, token, start + o),
                )

        for_rows(tokens, tokens * (heads * width) > SERIAL_WORK, body)
    return builder.finish()
