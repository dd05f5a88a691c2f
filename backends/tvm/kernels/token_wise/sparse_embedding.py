"""Embedding lookup from the sparse weight of a tied head."""

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
    intrinsic,
    kernel,
    register,
    round_up,
    store,
)
from optc.backends.tvm.weights.packing import BLOCK, K_MULTIPLE
from optc.backends.tvm.weights.sparse_packing import STEP, VECTOR, VECTORS, ZERO, segments


@dataclass(frozen=True)
class SparseEmbedding:
    """Lookup in the packed weight of a tied head: row ``token`` is output channel ``token``.

    Attributes:
        vocab: V, output channels of the head.
        width: D, input channels of the head.
    """

    vocab: int
    width: int


def sparse_embedding(config: SparseEmbedding, isa: Isa) -> tvm.tirx.PrimFunc:
    """tokens i32 [T], mask u64 [N/64,Kp/4,4], starts i64 [N/64,K/256,4], values u8 [V], ws f32
    [N/64,1,64] (`optc.backends.tvm.weights.sparse_packing`) -> out f32 [T,D].

    out = q * scale in float32, as `quantized_embedding`'s. The values of a channel lie among those
    of 15 others, whose bits are counted. ``isa`` changes nothing.
    """
    width, blocks = config.width, round_up(config.vocab, BLOCK) // BLOCK
    steps = round_up(width, K_MULTIPLE) // STEP
    with kernel("sparse_embedding") as builder:
        rows, size = builder.size(), tir.int64()
        tokens = builder.argument("tokens", (rows,), "int32")
        mask = builder.argument("mask", (blocks, steps, VECTORS), "uint64")
        starts = builder.argument("starts", (blocks, segments(width), VECTORS), "int64")
        values = builder.argument("values", (size,), "uint8")
        scales = builder.argument("ws", (blocks, 1, BLOCK))
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            token = bind(tokens[row])
            block, column = bind(token // BLOCK), bind(token % BLOCK)
            vector = bind(column // VECTOR)
            shift = bind(tir.cast(column % VECTOR * STEP, "uint64"))
            scale = bind(scales[block, 0, column])
            position = register(starts[block, 0, vector], "int64", lanes=1)

            def step(k: Expr | int, count: int) -> None:
                """Channels 4k .. 4k + count - 1."""
                ones = bind(mask[block, k, vector])
                before = bind(ones & ((tir.uint64(1) << shift) - tir.uint64(1)))
                four, first = bind(ones >> shift), bind(position.get() + _count(before))
                for index in range(count):
                    lower = four & tir.uint64((1 << index) - 1)
                    value = tir.cast(values[first + _count(lower)], "int32") - ZERO
                    present = (four >> tir.uint64(index)) & tir.uint64(1)
                    q = tir.Select(present == tir.uint64(1), value, tir.int32(0))
                    store(out, tir.cast(q, "float32") * scale, row, k * STEP + index)
                position.set(position.get() + _count(ones))

            with tir.serial(0, width // STEP) as k:
                step(k, STEP)
            if width % STEP:
                step(width // STEP, width % STEP)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


def _count(bits: Expr) -> Expr:
    """Ones of a word, int64."""
    return tir.cast(intrinsic("llvm.ctpop", "uint64", bits), "int64")
