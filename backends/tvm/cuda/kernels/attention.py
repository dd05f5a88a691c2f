"""Paged attention over ragged rows: prefill, decode and verification in one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.cuda.kernels.kv import POOLS
from optc.backends.tvm.cuda.kernels.launch import float_bits, launch, template
from optc.backends.tvm.kernels.attention_rows import PagedAttention
from optc.backends.tvm.kernels.pools import KVShape, pool_arguments
from optc.backends.tvm.kernels.script import CUDA_DEVICE, Expr, kernel, workspace

#: Query heads that a block of threads computes together, if so many share a KV head and their
#: values fit its shared memory.
_VECTORS, _VALUES = 8, 2048
#: Values of a block's warps that fit its shared memory with eight warps.
_EIGHT_WARPS = 1024
_WARP = 32
#: Ranges of a row's tokens, as in the device code.
_RANGES = 8
#: Rows up to which, and blocks of a table beyond which, ranges are computed by blocks of their own.
_SPLIT_ROWS, _SPLIT_BLOCKS = 64, 8
_MERGE_THREADS = 64


def paged_attention(config: PagedAttention) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.attention.paged_attention`; a block of threads computes one row
    and up to eight heads that share a KV head.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    shared = config.heads // config.kv_heads
    vectors = min(shared, _VECTORS, max(1, _VALUES // config.value_dim))
    with kernel("paged_attention") as builder:
        rows, tiles, starts, blocks = (builder.size() for _ in range(4))
        q = builder.argument("q", (rows, config.heads * config.key_dim))
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        query_starts = builder.argument("query_starts", (starts,), "int32")
        sequences = starts - 1
        lengths = builder.argument("kv_lengths", (config.groups, sequences), "int32")
        tables = builder.argument("block_tables", (config.groups, sequences, blocks), "int32")
        block_size = builder.argument("block_size", (1,), "int32")
        out = builder.argument("out", (rows, config.heads * config.value_dim))
        kind = template(
            "Attention",
            POOLS[config.kv_dtype],
            config.heads,
            config.kv_heads,
            config.key_dim,
            config.value_dim,
            float_bits(config.scale),
            float_bits(config.softcap),
            vectors,
        )
        warps = 8 if config.value_dim * vectors <= _EIGHT_WARPS else 4
        step = _Step(
            kind,
            (rows, config.kv_heads * -(-shared // vectors)),
            warps * _WARP,
            (q, k_pool, v_pool, query_starts, lengths, tables, block_size),
            (sequences, blocks),
        )
        with tir.If(tir.And(rows <= _SPLIT_ROWS, blocks > _SPLIT_BLOCKS)):
            with tir.Then():
                _split(config, step, out)
            with tir.Else():
                function = template("paged_attention", kind, config.window, config.group)
                launch(function, step.grid, step.threads, (*step.buffers, out), *step.sizes)
    return builder.finish()


@dataclass(frozen=True)
class _Step:
    """The operands of a call.

    Attributes:
        kind: The configuration as a type of the device code.
        grid: Rows, and runs of query heads.
        threads: Of a block.
        buffers: Those that are read.
        sizes: Sequences, and blocks of a table.
    """

    kind: str
    grid: tuple[Expr, int]
    threads: int
    buffers: tuple[Expr, ...]
    sizes: tuple[Expr, Expr]


def _split(config: PagedAttention, step: _Step, out: Expr) -> None:
    """Ranges of tokens in blocks of their own, then their merge: few rows alone would leave most of
    the device idle."""
    rows, _ = step.grid
    shape = (rows, config.heads, _RANGES, config.value_dim + 2)
    with workspace(shape, device=CUDA_DEVICE) as ranges:
        function = template("attention_range", step.kind, config.window, config.group)
        grid = (*step.grid, _RANGES)
        launch(function, grid, step.threads, (*step.buffers, ranges), *step.sizes)
        function = template("merge_ranges", step.kind)
        launch(function, (rows, config.heads), _MERGE_THREADS, (ranges, out))
