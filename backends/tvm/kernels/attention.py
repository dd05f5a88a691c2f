"""Paged attention over ragged rows: prefill, decode and verification in one kernel.

The result of a row depends on its query and its sequence's K and V alone, bit for bit: partitions
lie at fixed absolute positions and are merged in order (`attention_partition`), however the step is
cut into work items (`attention_plan`). The idea of tiling with an online softmax is that of
FlashAttention (Dao et al., 2022), the splitting over KV that of Flash-Decoding (Dao et al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention_partition import (
    PARTITION,
    Pools,
    Queries,
    attend_partition,
    blocking,
)
from optc.backends.tvm.kernels.attention_plan import (
    Items,
    Ragged,
    Tiles,
    partitions_of,
    plan_items,
    plan_tiles,
)
from optc.backends.tvm.kernels.attention_softmax import (
    Running,
    merge_factors,
    merge_total,
    new_running,
)
from optc.backends.tvm.kernels.pools import DIM_MULTIPLE, TILE, KVShape, pool_arguments
from optc.backends.tvm.kernels.script import (
    Expr,
    bind,
    kernel,
    load,
    scratch,
    splat,
    store,
    workspace,
)
from optc.errors import UnsupportedError

#: Query vectors of a tile of several rows.
_TILE_VECTORS = 16
#: Multiply-adds below which a parallel region costs more than it saves.
_SERIAL_WORK = 1 << 18


@dataclass(frozen=True)
class PagedAttention:
    """Attention of one layer.

    Attributes:
        heads: H.
        kv_heads: Hkv, divides H.
        key_dim: Dk, a multiple of 8.
        value_dim: Dv, a multiple of 8.
        scale: Factor of the dot products.
        softcap: Scores become ``softcap * tanh(score / softcap)``; 0 = off.
        window: Tokens that a row sees, itself included; 0 = all.
        group: Row of kv_lengths and block_tables.
        groups: G.
        kv_dtype: Element type of the pools.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    softcap: float = 0.0
    window: int = 0
    group: int = 0
    groups: int = 1
    kv_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UnsupportedError(
                f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly",
                where="PagedAttention",
                hint="the number of heads must be a multiple of that of KV heads",
            )

    @property
    def shared(self) -> int:
        """Heads that share a KV head."""
        return self.heads // self.kv_heads

    @property
    def tile_rows(self) -> int:
        """Rows of a tile of several rows."""
        return max(1, _TILE_VECTORS // self.shared)


@dataclass(frozen=True)
class _Step:
    """What the work items of one call share."""

    config: PagedAttention
    isa: Isa
    q: Expr
    pools: Pools
    ragged: Ragged
    out: Expr
    tiles: Tiles
    items: Items
    partial: Running


def paged_attention(config: PagedAttention, isa: Isa) -> tvm.tirx.PrimFunc:
    """q f32 [T,H*Dk], k_pool f32 [tiles,Hkv,Dk,16], v_pool f32 [tiles,Hkv,16,Dv],
    query_starts i32 [B+1], kv_lengths i32 [G,B], block_tables i32 [G,B,P], block_size i32 [1]
    -> out f32 [T,H*Dv].

    Row i of the n rows of a sequence sees tokens up to ``kv_lengths - n + i``, of which the last
    ``window``. Rows that belong to no sequence become zero. ``isa`` chooses register tiles; results
    are the same on every instruction set.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
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
        ragged = Ragged(
            sequences, query_starts, lengths, tables, block_size, config.group, config.window
        )
        pools = Pools(k_pool, v_pool, shape, config.scale, config.softcap)
        planned = plan_tiles(ragged, rows, config.tile_rows)
        cost = tir.float32(config.heads * (config.key_dim + config.value_dim))
        parallel = planned.work * cost > tir.float32(_SERIAL_WORK)
        with (
            plan_items(ragged, planned, rows, config.kv_heads, parallel) as items,
            _partial_results(config, items.slots) as partial,
        ):
            _run(_Step(config, isa, q, pools, ragged, out, planned, items, partial), parallel)
        _clear(out, query_starts[sequences], rows, config.heads * config.value_dim)
    return builder.finish()


@contextmanager
def _partial_results(config: PagedAttention, slots: Expr) -> Iterator[Running]:
    """Results of partitions that are items of their own: [slots * Hkv * vectors of a tile, ...]."""
    vectors = config.tile_rows * config.shared
    size = bind(slots * (config.kv_heads * vectors))
    with (
        workspace((size,)) as largest,
        workspace((size,)) as norm,
        workspace((size, config.value_dim)) as total,
    ):
        yield Running(largest, norm, total)


def _run(step: _Step, parallel: Expr) -> None:
    """Do all items, on all threads if ``parallel``, then merge the tiles that were split."""
    heads = step.config.kv_heads
    count = bind(step.items.count * heads)
    with tir.If(parallel):
        # Items go to threads in turn: neighbours cost about the same.
        with (
            tir.Then(),
            tir.attr(tir.int32(0), "pragma_parallel_launch_point", 1),
            tir.attr(tir.int32(0), "pragma_parallel_stride_pattern", 1),
            tir.parallel(0, count) as index,
        ):
            _item(step, bind(index // heads), bind(index % heads))
        with tir.Else(), tir.serial(0, count) as index:
            _rows_alone(step, bind(index // heads), bind(index % heads))
    with (
        tir.serial(0, step.tiles.count) as tile,
        tir.If(step.items.first_slot[tile] >= 0),
        tir.Then(),
    ):
        _merge_tile(step, tile)


def _item(step: _Step, item: Expr, head: Expr) -> None:
    """Do one item for one KV head with the register tiles for one row or for several."""
    tile = step.items.field("tile", item)
    sequence, row = bind(step.tiles.sequence[tile]), bind(step.tiles.row[tile])
    rows = bind(step.tiles.rows[tile])
    partitions = (step.items.field("begin", item), step.items.field("end", item))

    def attend(most: int) -> None:
        work = _Work(sequence, row, rows, most, head, partitions)
        running = _attend(step, work)
        slot = step.items.field("slot", item)
        with tir.If(slot < 0):
            with tir.Then():
                _write(step, work, running)
            with tir.Else():
                _keep(step, slot, work, running)

    if step.config.tile_rows == 1:
        attend(1)
        return
    with tir.If(rows == 1):
        with tir.Then():
            attend(1)
        with tir.Else():
            attend(step.config.tile_rows)


def _rows_alone(step: _Step, tile: Expr, head: Expr) -> None:
    """Do a whole tile row by row: for little work, where less code serves better."""
    sequence = bind(step.tiles.sequence[tile])
    with tir.serial(0, step.tiles.rows[tile]) as i:
        row = bind(step.tiles.row[tile] + i)
        partitions = partitions_of(step.ragged.seen(sequence, row, 1))
        work = _Work(sequence, row, tir.int32(1), 1, head, partitions)
        _write(step, work, _attend(step, work))


@dataclass(frozen=True)
class _Work:
    """Some rows of one sequence and one KV head.

    Attributes:
        sequence: The sequence.
        row: First row of the step.
        rows: Number of rows.
        most: Number of rows that the register tiles are made for; at least ``rows``.
        head: KV head.
        partitions: First partition, and the one after the last.
    """

    sequence: Expr
    row: Expr
    rows: Expr
    most: int
    head: Expr
    partitions: tuple[Expr, Expr]


def _attend(step: _Step, work: _Work) -> Running:
    """Take the rows through their partitions."""
    config, ragged = step.config, step.ragged
    seen = ragged.seen(work.sequence, work.row, work.rows)
    queries = _queries(step, work)
    running = new_running(work.most * config.shared, config.value_dim)
    size = bind(ragged.block_size[0])

    def tile_at(token: Expr) -> Expr:
        block = ragged.tables[config.group, work.sequence, token // size]
        return (block * size + token % size) // TILE

    with tir.serial(*work.partitions) as partition:
        start = bind(partition * PARTITION)
        attend_partition(step.pools, queries, running, work.head, start, seen, tile_at)
    return running


def _queries(step: _Step, work: _Work) -> Queries:
    """The query vectors; vector m is head ``m % shared`` of row ``m / shared``."""
    config = step.config
    shared, dim = config.shared, config.key_dim
    first_end = bind(step.ragged.first_end(work.sequence, work.row))
    size = blocking(work.most * shared, step.isa)
    column = bind(work.head * (shared * dim))

    def row_of(m: Expr | int) -> Expr:
        # Vectors beyond the last row repeat that row; they are not written.
        return tir.min(m // shared, work.rows - 1)

    def bounds(m: Expr | int) -> tuple[Expr, Expr]:
        end = bind(first_end if work.most == 1 else first_end + row_of(m))
        return bind(step.ragged.low(end)), end

    if work.most == 1:
        return Queries(lambda m, d: step.q[work.row, column + m * dim + d], bounds, size)
    copy = scratch((work.most * shared, dim))
    with tir.serial(0, work.most * shared) as m:
        row, start = bind(work.row + row_of(m)), bind(column + m % shared * dim)
        with tir.serial(0, dim // DIM_MULTIPLE) as part:
            d = part * DIM_MULTIPLE
            store(copy, load(step.q, row, start + d, lanes=DIM_MULTIPLE), m, d)
    return Queries(lambda m, d: copy[m, d], bounds, size)


def _write(step: _Step, work: _Work, running: Running) -> None:
    """Write finished rows."""
    config = step.config
    with tir.serial(0, work.rows * config.shared) as m:
        inverse = bind(splat(tir.float32(1) / running.norm[m], lanes=DIM_MULTIPLE))
        column = bind((work.head * config.shared + m % config.shared) * config.value_dim)
        with tir.serial(0, config.value_dim // DIM_MULTIPLE) as part:
            d = part * DIM_MULTIPLE
            value = load(running.total, m, d, lanes=DIM_MULTIPLE) * inverse
            store(step.out, value, work.row + m // config.shared, column + d)


def _keep(step: _Step, slot: Expr, work: _Work, running: Running) -> None:
    """Keep the result of one partition for the merge."""
    config = step.config
    place = bind(_place(config, slot, work.head))
    with tir.serial(0, work.most * config.shared) as m:
        store(step.partial.largest, running.largest[m], place + m)
        store(step.partial.norm, running.norm[m], place + m)
        with tir.serial(0, config.value_dim // DIM_MULTIPLE) as part:
            d = part * DIM_MULTIPLE
            store(step.partial.total, load(running.total, m, d, lanes=DIM_MULTIPLE), place + m, d)


def _place(config: PagedAttention, slot: Expr, head: Expr) -> Expr:
    vectors = config.tile_rows * config.shared
    return (slot * config.kv_heads + head) * vectors


def _merge_tile(step: _Step, tile: Expr) -> None:
    """Merge the partitions of a split tile in order and write its rows."""
    config, partial = step.config, step.partial
    vectors = config.tile_rows * config.shared
    sequence, row = bind(step.tiles.sequence[tile]), bind(step.tiles.row[tile])
    rows = bind(step.tiles.rows[tile])
    low, high = partitions_of(step.tiles.seen(step.ragged, tile))
    with tir.serial(0, config.kv_heads) as head:
        running = new_running(vectors, config.value_dim)
        with tir.serial(0, high - low) as index:
            slot = step.items.first_slot[tile] + index
            place = bind(_place(config, slot, head))
            with tir.serial(0, rows * config.shared) as m:
                largest, norm = bind(partial.largest[place + m]), bind(partial.norm[place + m])
                old, new = merge_factors(running, m, largest, norm)
                with tir.serial(0, config.value_dim // DIM_MULTIPLE) as part:
                    d = part * DIM_MULTIPLE
                    values = bind(load(partial.total, place + m, d, lanes=DIM_MULTIPLE))
                    merge_total(running, values, m, d, old, new)
        _write(step, _Work(sequence, row, rows, config.tile_rows, head, (low, high)), running)


def _clear(out: Expr, first: Expr, rows: Expr, width: int) -> None:
    """Zero the rows from ``first`` on."""
    with tir.serial(first, rows) as row, tir.serial(0, width // DIM_MULTIPLE) as part:
        store(out, splat(0.0, lanes=DIM_MULTIPLE), row, part * DIM_MULTIPLE)
