"""Embedding lookups, gathers of rows, and heads of two values side by side. A block a row."""

from __future__ import annotations

import tvm

from optc.backends.tvm.kernels.dsl.script import kernel, round_up
from optc.backends.tvm.kernels.kv.head_concat import HeadConcat
from optc.backends.tvm.kernels.token_wise.embedding import Embedding, QuantizedEmbedding
from optc.backends.tvm.kernels.token_wise.gather_rows import RowGather
from optc.backends.tvm_cuda.kernels.launch import launch, template

#: Of a block.
_THREADS = 256
#: Output channels of a block of a packed weight, and the multiple K is padded to.
_BLOCK, _K_MULTIPLE = 64, 32


def gather_rows(config: RowGather) -> tvm.tirx.PrimFunc:
    """x f32 [T,D], rows i32 [R] -> out f32 [R,D] with ``out[r] = x[rows[r]]``."""
    with kernel("gather_rows") as builder:
        count, total = builder.size(), builder.size()
        x = builder.argument("x", (total, config.width))
        rows = builder.argument("rows", (count,), "int32")
        out = builder.argument("out", (count, config.width))
        launch(template("gather_rows", config.width), (count,), _THREADS, (x, rows, out))
    return builder.finish()


def head_concat(config: HeadConcat) -> tvm.tirx.PrimFunc:
    """a f32 [T,F] (shared) or [T,H*F], b f32 [T,H*S] -> out f32 [T,H*(F+S)]."""
    heads, first, second = config.heads, config.first, config.second
    with kernel("head_concat") as builder:
        rows = builder.size()
        a = builder.argument("a", (rows, first * (1 if config.shared else heads)))
        b = builder.argument("b", (rows, heads * second))
        out = builder.argument("out", (rows, heads * (first + second)))
        function = template("head_concat", heads, first, second, config.shared)
        launch(function, (rows,), _THREADS, (a, b, out))
    return builder.finish()


def embedding(config: Embedding) -> tvm.tirx.PrimFunc:
    """table f32 or u16 (bfloat16 bits) [V,D], tokens i32 [T] -> out f32 [T,D]. The packed table is
    u16 [V/64,D/2,64,2], both rounded up."""
    width, blocks = config.width, round_up(config.vocab, _BLOCK) // _BLOCK
    with kernel("embedding") as builder:
        rows = builder.size()
        if config.packed:
            shape: tuple[int, ...] = (blocks, -(-width // 2), _BLOCK, 2)
            table = builder.argument("table", shape, "uint16")
            function = template("packed_embedding", width)
        else:
            dtype = "uint16" if config.dtype == "bfloat16" else "float32"
            table = builder.argument("table", (config.vocab, width), dtype)
            function = template("embedding", width)
        tokens = builder.argument("tokens", (rows,), "int32")
        out = builder.argument("out", (rows, width))
        launch(function, (rows,), _THREADS, (table, tokens, out))
    return builder.finish()


def quantized_embedding(config: QuantizedEmbedding) -> tvm.tirx.PrimFunc:
    """tokens i32 [T], w u8 [N/64,Kp*bits/32,64,4], ws [N/64,G,64] (f32 per channel, bits of f16
    with groups), [wz u8 [N/64,G,64]] -> out f32 [T,D]."""
    width, group = config.width, config.group_size or config.width
    blocks, groups = round_up(config.vocab, _BLOCK) // _BLOCK, -(-width // group)
    with kernel("quantized_embedding") as builder:
        rows = builder.size()
        tokens = builder.argument("tokens", (rows,), "int32")
        words = round_up(width, _K_MULTIPLE) * config.bits // 32
        w = builder.argument("w", (blocks, words, _BLOCK, 4), "uint8")
        scales = "uint16" if config.group_size else "float32"
        ws = builder.argument("ws", (blocks, groups, _BLOCK), scales)
        wz = w
        if config.asymmetric:
            wz = builder.argument("wz", (blocks, groups, _BLOCK), "uint8")
        out = builder.argument("out", (rows, width))
        function = template(
            "quantized_embedding", width, config.bits, config.group_size, config.asymmetric
        )
        launch(function, (rows,), _THREADS, (tokens, w, ws, wz, out))
    return builder.finish()
