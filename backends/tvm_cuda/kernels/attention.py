"""Paged attention over ragged rows: prefill, decode and verification."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.rows import TWO_PLANES_KEY_DIM, PagedAttention
from optc.backends.tvm.kernels.dsl.script import Expr, kernel
from optc.backends.tvm.kernels.kv.pools import KVShape, pool_arguments
from optc.backends.tvm_cuda.kernels.kv import POOLS
from optc.backends.tvm_cuda.kernels.launch import float_bits, launch, template
from optc.backends.tvm_cuda.step_memory import ROW_RANGES, SPLIT_ROWS
from optc.errors import UnsupportedError

#: Query heads that a block of threads computes together, if so many share a KV head: rows of a
#: fragment, or on the ordinary units what registers hold.
_VECTORS = {True: 16, False: 8}
#: Their values, and those up to which eight warps' results fit shared memory, not four's.
_VALUES, _EIGHT_WARPS = 2048, 1024
#: Key dimension beyond which queries leave room for half of that.
_WIDE_KEYS = 192
_WARP = 32
#: Rows of a fragment, as in the device code.
_FRAGMENT = 16
#: Blocks of a table beyond which ranges of few rows are computed by blocks of their own.
_SPLIT_BLOCKS = 8
#: Steps with more rows compute sequences with more than so many new rows by tiles of rows.
_TILED_STEP, _TILED_ROWS = 32, 8
#: No sequence has more new rows.
_ALL = 2**31 - 1
_MERGE_THREADS = 64


def paged_attention(config: PagedAttention) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.attention.paged_attention.paged_attention`, with memory for
    ranges f32 [N], at least `optc.backends.tvm_cuda.step_memory.range_values`, before the result.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel, or rows are not causal.
    """
    if not config.causal:
        raise UnsupportedError(
            "rows that see what lies behind them have no CUDA kernel",
            where="PagedAttention",
            hint="compile encoders for a CPU target",
        )
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    if shape.type.scaled and config.key_dim > TWO_PLANES_KEY_DIM:
        raise UnsupportedError(
            f"keys of {config.key_dim} channels over {config.kv_dtype} pools have no CUDA kernel",
            where="PagedAttention",
            hint=f"at most {TWO_PLANES_KEY_DIM}; use kv-cache.dtype=bfloat16",
        )
    blocking = _Blocking.of(config)
    with kernel("paged_attention") as builder:
        rows, tiles, starts, blocks = (builder.size() for _ in range(4))
        q = builder.argument("q", (rows, config.heads * config.key_dim))
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        query_starts = builder.argument("query_starts", (starts,), "int32")
        sequences = starts - 1
        lengths = builder.argument("kv_lengths", (config.groups, sequences), "int32")
        tables = builder.argument("block_tables", (config.groups, sequences, blocks), "int32")
        block_size = builder.argument("block_size", (1,), "int32")
        # Where heads have none, the device code reads nothing.
        sinks = builder.argument("sinks", (config.heads,)) if config.sinks else q
        slopes = builder.argument("slopes", (config.heads,)) if config.slopes else q
        ranges = builder.argument("ranges", (builder.size(),))
        out = builder.argument("out", (rows, config.heads * config.value_dim))
        step = _Step(
            config,
            blocking,
            rows,
            (q, k_pool, v_pool, query_starts, lengths, tables, block_size),
            (sinks, slopes),
            (sequences, blocks),
        )
        with tir.If(tir.And(rows <= SPLIT_ROWS, blocks > _SPLIT_BLOCKS)):
            with tir.Then():
                step.split(ranges, out)
            with tir.Else():
                step.whole(out)
    return builder.finish()


@dataclass(frozen=True)
class _Blocking:
    """The division of the work.

    Attributes:
        tensor: On tensor cores: pools of bfloat16 and int8.
        vectors: Query heads that are computed together.
        warps: Of a block that computes a row.
        tile_warps: Of a block that computes tiles of rows.
    """

    tensor: bool
    vectors: int
    warps: int
    tile_warps: int

    @staticmethod
    def of(config: PagedAttention) -> _Blocking:
        """The blocking of a configuration."""
        tensor = config.kv_dtype != "float32"
        wide = config.key_dim > _WIDE_KEYS
        values = _VALUES // 2 if wide else _VALUES
        vectors = min(config.shared, _VECTORS[tensor], max(1, values // config.value_dim))
        warps = 4 if wide or config.value_dim * vectors > _EIGHT_WARPS else 8
        terms = 2 if config.kv_dtype == "int8" and not config.query_bits else 1
        return _Blocking(tensor, vectors, warps, 2 if terms * config.key_dim > 256 else 4)


@dataclass(frozen=True)
class _Step:
    """The operands of a call.

    Attributes:
        config: The configuration.
        blocking: Of it.
        rows: T.
        buffers: Those that are read.
        of_heads: Sinks and slopes.
        sizes: Sequences, and blocks of a table.
    """

    config: PagedAttention
    blocking: _Blocking
    rows: Expr
    buffers: tuple[Expr, ...]
    of_heads: tuple[Expr, Expr]
    sizes: tuple[Expr, Expr]

    def whole(self, out: Expr) -> None:
        """A block for each row; in steps of many rows sequences of many rows by tiles."""
        if not self.blocking.tensor:
            self._rows(out, tir.int32(_ALL))
            return
        tiled = self.rows > _TILED_STEP
        self._rows(out, tir.Select(tiled, tir.int32(_TILED_ROWS), tir.int32(_ALL)))
        with tir.If(tiled), tir.Then():
            self._tiles(out)

    def split(self, ranges: Expr, out: Expr) -> None:
        """Ranges of tokens in blocks of their own, then their merge: few rows alone would leave
        most of the device idle."""
        warps = self.blocking.warps
        grid = (self.rows, self._runs, ROW_RANGES // warps)
        function = self._function("attention_ranges")
        sinks, slopes = self.of_heads
        launch(function, grid, warps * _WARP, (*self.buffers, slopes, ranges), *self.sizes)
        function = template("merge_ranges", self._kind)
        launch(function, (self.rows, self.config.heads), _MERGE_THREADS, (ranges, sinks, out))

    def _rows(self, out: Expr, most: Expr) -> None:
        function = self._function("attention_rows")
        grid, threads = (self.rows, self._runs), self.blocking.warps * _WARP
        operands = (*self.buffers, *self.of_heads, out)
        launch(function, grid, threads, operands, *self.sizes, most)

    def _tiles(self, out: Expr) -> None:
        warps = self.blocking.tile_warps
        function = self._function("attention_tiles", warps)
        run = warps * (_FRAGMENT // self.blocking.vectors)
        grid = ((self.rows + run - 1) // run, self._runs)
        operands = (*self.buffers, *self.of_heads, out)
        launch(function, grid, warps * _WARP, operands, *self.sizes, tir.int32(_TILED_ROWS))

    def _function(self, name: str, *more: int) -> str:
        return template(name, self._kind, self.config.group, *more)

    @property
    def _runs(self) -> int:
        """Runs of query heads that blocks compute."""
        return self.config.kv_heads * -(-self.config.shared // self.blocking.vectors)

    @property
    def _kind(self) -> str:
        """The configuration as a type of the device code."""
        config = self.config
        return template(
            "Attention",
            POOLS[config.kv_dtype],
            config.heads,
            config.kv_heads,
            config.key_dim,
            config.value_dim,
            float_bits(config.scale),
            float_bits(config.softcap),
            config.window,
            config.chunk,
            config.sinks,
            config.slopes,
            config.query_bits,
            self.blocking.vectors,
            self.blocking.warps,
        )
