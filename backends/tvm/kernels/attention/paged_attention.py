"""Paged attention over ragged rows: prefill, decode and verification in one kernel.

The result of a row depends on its query and its sequence's K and V alone, bit for bit: partitions
lie at fixed absolute positions and are merged in order (`attention_partition`), however the step is
cut into work items (`attention_plan`). The idea of tiling with an online softmax is that of
FlashAttention (Dao et al., 2022), the splitting over KV that of Flash-Decoding (Dao et al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.claims import CLAIM_IR, for_claimed
from optc.backends.tvm.kernels.attention.numbers import numbers_of
from optc.backends.tvm.kernels.attention.plan import (
    Items,
    Ragged,
    Tiles,
    plan_items,
    plan_tiles,
)
from optc.backends.tvm.kernels.attention.rows import (
    Operands,
    PagedAttention,
    RowWork,
    Start,
    attend_rows,
    write_rows,
)
from optc.backends.tvm.kernels.attention.softmax import (
    Running,
    merge_factors,
    merge_total,
    new_running,
)
from optc.backends.tvm.kernels.attention.state import Pools
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    bind,
    kernel,
    load,
    splat,
    store,
    workspace,
)
from optc.backends.tvm.kernels.kv.pools import KVShape, for_parts, pool_arguments
from optc.backends.tvm.kernels.matmul.matmul_float import DOT_IR

__all__ = ["PagedAttention", "paged_attention"]

#: Multiply-adds below which a parallel region costs more than it saves.
_SERIAL_WORK = 1 << 18


@dataclass(frozen=True)
class _Step:
    """The operands of one call, and how its work is cut."""

    operands: Operands
    tiles: Tiles
    items: Items
    partial: Running


def paged_attention(config: PagedAttention, isa: Isa) -> tvm.tirx.PrimFunc:
    """q f32 [T,H*Dk], k_pool, v_pool (`optc.backends.tvm.kv_layout`), recent_k_pool and
    recent_v_pool, query_starts i32 [B+1], kv_lengths i32 [G,B], block_tables i32 [G,B,P],
    block_size i32 [1], sinks f32 [H], slopes f32 [H], biases f32 [H,N] -> out f32 [T,H*Dv]. Recent
    pools, sinks, slopes and biases are there if the config says so.

    Row i of the n rows of a sequence sees tokens up to ``kv_lengths - n + i``, of which the last
    ``window``, and those of its ``chunk``. If they are not ``causal``, rows see all tokens of their
    sequence, or those less than ``window`` away. Rows that belong to no sequence become zero.
    ``isa`` chooses register tiles; results are the same on every instruction set, but for bfloat16
    pools with and without vdpbf16ps.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("paged_attention") as builder:
        rows, starts, blocks = (builder.size() for _ in range(3))
        q = builder.argument("q", (rows, config.heads * config.key_dim))
        k_pool, v_pool = pool_arguments(builder, builder.size(), shape)
        latest = (
            pool_arguments(builder, builder.size(), shape.recent, "recent_")
            if config.recent
            else None
        )
        query_starts = builder.argument("query_starts", (starts,), "int32")
        sequences = starts - 1
        lengths = builder.argument("kv_lengths", (config.groups, sequences), "int32")
        tables = builder.argument("block_tables", (config.groups, sequences, blocks), "int32")
        block_size = builder.argument("block_size", (1,), "int32")
        sinks = builder.argument("sinks", (config.heads,)) if config.sinks else None
        slopes = builder.argument("slopes", (config.heads,)) if config.slopes else None
        runs = (config.heads, config.distances)
        biases = builder.argument("biases", runs) if config.distances else None
        out = builder.argument("out", (rows, config.heads * config.value_dim))
        where = (config.group, config.window, config.chunk)
        ragged = Ragged(
            sequences, query_starts, lengths, tables, block_size, *where, causal=config.causal
        )
        pools = _pools(config, shape, isa, (k_pool, v_pool))
        recent = None
        if latest is not None:
            recent = _pools(config, shape.recent, isa, latest)
            near = replace(ragged, group=config.recent_group, window=config.recent)
            ragged = replace(ragged, recent=near)
        by_head = sinks, slopes, biases
        operands = Operands(config, isa, q, pools, recent, ragged, *by_head, out)
        planned = plan_tiles(ragged, rows, operands.tile_rows)
        cost = tir.float32(config.heads * (config.key_dim + config.value_dim))
        parallel = planned.work * cost > tir.float32(_SERIAL_WORK)
        paired = config.kv_dtype == "bfloat16" and isa.bf16
        with (
            tir.attr(0, "pragma_import_llvm", CLAIM_IR),
            tir.attr(0, "pragma_import_llvm", DOT_IR) if paired else nullcontext(),
            plan_items(ragged, planned, rows, config.kv_heads, parallel) as items,
            _partial_results(operands, items.slots) as partial,
        ):
            _run(_Step(operands, planned, items, partial), parallel)
        _clear(out, query_starts[sequences], rows, config.heads * config.value_dim)
    return builder.finish()


def _pools(config: PagedAttention, shape: KVShape, isa: Isa, pools: tuple[Expr, Expr]) -> Pools:
    numbers = numbers_of(shape, isa, config.query_bits)
    return Pools(*pools, shape, numbers, config.scale, config.softcap)


@contextmanager
def _partial_results(operands: Operands, slots: Expr) -> Iterator[Running]:
    """Results of partitions that are items of their own: [slots * Hkv * vectors of a tile, ...]."""
    config = operands.config
    size = bind(slots * (config.kv_heads * operands.tile_rows * config.shared))
    with (
        workspace((size,)) as largest,
        workspace((size,)) as norm,
        workspace((size, config.value_dim)) as total,
    ):
        yield Running(largest, norm, total)


def _run(step: _Step, parallel: Expr) -> None:
    """Do all items, on all threads if ``parallel``, then merge the tiles that were split."""
    heads = step.operands.config.kv_heads
    count = bind(step.items.count * heads)
    with tir.If(parallel):
        with tir.Then():
            for_claimed(count, lambda index: _item(step, index, tir.min(index + 1, count - 1)))
        with tir.Else(), tir.serial(0, count) as index:
            _rows_alone(step, bind(index // heads), bind(index % heads))
    with (
        tir.serial(0, step.tiles.count) as tile,
        tir.If(step.items.first_slot[tile] >= 0),
        tir.Then(),
    ):
        _merge_tile(step, tile)


def _item(step: _Step, index: Expr, following: Expr) -> None:
    """Do one item for one KV head with the register tiles for one row or for several."""
    heads = step.operands.config.kv_heads
    item, head = bind(index // heads), bind(index % heads)
    tile = step.items.field("tile", item)
    sequence, row = bind(step.tiles.sequence[tile]), bind(step.tiles.row[tile])
    rows = bind(step.tiles.rows[tile])
    partitions = (step.items.field("begin", item), step.items.field("end", item))
    then = _start(step, bind(following // heads), bind(following % heads))

    def attend(most: int) -> None:
        work = RowWork(sequence, row, rows, most, head, partitions, then)
        running = attend_rows(step.operands, work)
        slot = step.items.field("slot", item)
        with tir.If(slot < 0):
            with tir.Then():
                write_rows(step.operands, work, running)
            with tir.Else():
                _keep(step, slot, work, running)

    if step.operands.tile_rows == 1:
        attend(1)
        return
    with tir.If(rows == 1):
        with tir.Then():
            attend(1)
        with tir.Else():
            attend(step.operands.tile_rows)


def _start(step: _Step, item: Expr, head: Expr) -> Start:
    tile = step.items.field("tile", item)
    seen = step.tiles.seen(step.operands.ragged, tile)
    return Start(bind(step.tiles.sequence[tile]), head, step.items.field("begin", item), seen)


def _rows_alone(step: _Step, tile: Expr, head: Expr) -> None:
    """Do a whole tile row by row: for little work, where less code serves better."""
    sequence = bind(step.tiles.sequence[tile])
    with tir.serial(0, step.tiles.rows[tile]) as i:
        row = bind(step.tiles.row[tile] + i)
        seen = step.operands.ragged.seen(sequence, row, 1)
        low, _, end = step.operands.ragged.partitions(sequence, row, 1)
        partitions = (low, end)
        then = Start(sequence, head, low, seen)
        work = RowWork(sequence, row, tir.int32(1), 1, head, partitions, then)
        write_rows(step.operands, work, attend_rows(step.operands, work))


def _keep(step: _Step, slot: Expr, work: RowWork, running: Running) -> None:
    """Keep the result of one partition for the merge."""
    config = step.operands.config
    place = bind(_place(step.operands, slot, work.head))
    with tir.serial(0, work.most * config.shared) as m:
        store(step.partial.largest, running.largest[m], place + m)
        store(step.partial.norm, running.norm[m], place + m)
        for_parts(
            config.value_dim,
            lambda d, lanes: store(
                step.partial.total, load(running.total, m, d, lanes=lanes), place + m, d
            ),
        )


def _place(operands: Operands, slot: Expr, head: Expr) -> Expr:
    config = operands.config
    return (slot * config.kv_heads + head) * (operands.tile_rows * config.shared)


def _merge_tile(step: _Step, tile: Expr) -> None:
    """Merge the partitions of a split tile in order and write its rows."""
    config, partial = step.operands.config, step.partial
    vectors = step.operands.tile_rows * config.shared
    sequence, row = bind(step.tiles.sequence[tile]), bind(step.tiles.row[tile])
    rows = bind(step.tiles.rows[tile])
    low, high = step.tiles.spanned(step.operands.ragged, tile)
    with tir.serial(0, config.kv_heads) as head:
        running = new_running(vectors, config.value_dim)
        with tir.serial(0, high - low) as index:
            slot = step.items.first_slot[tile] + index
            place = bind(_place(step.operands, slot, head))
            with tir.serial(0, rows * config.shared) as m:
                largest, norm = bind(partial.largest[place + m]), bind(partial.norm[place + m])
                old, new = merge_factors(running, m, largest, norm)

                def merge(d: Expr, lanes: int) -> None:
                    values = bind(load(partial.total, place + m, d, lanes=lanes))
                    merge_total(running, values, m, d, old, new)

                for_parts(config.value_dim, merge)
        then = Start(sequence, head, low, (low, high))  # there is nothing to do after it
        work = RowWork(sequence, row, rows, step.operands.tile_rows, head, (low, high), then)
        write_rows(step.operands, work, running)


def _clear(out: Expr, first: Expr, rows: Expr, width: int) -> None:
    """Zero the rows from ``first`` on."""
    with tir.serial(first, rows) as row:
        for_parts(width, lambda d, lanes: store(out, splat(0.0, lanes=lanes), row, d))
