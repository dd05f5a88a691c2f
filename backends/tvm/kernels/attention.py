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
    Running,
    attend_partition,
    blocking,
    merge_factors,
    merge_total,
    new_running,
)
from optc.backends.tvm.kernels.attention_plan import (
    Items,
    Ragged,
    Tiles,
    partitions_of,
    plan_items,
    plan_tiles,
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
        with (
            plan_items(ragged, planned, rows, config.kv_heads) as items,
            _partial_results(config, items.slots) as partial,
        ):
            _run(_Step(config, isa, q, pools, ragged, out, planned, items, partial))
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


def _run(step: _Step) -> None:
    config = step.config
    cost = config.heads * (config.key_dim + config.value_dim)
    count = bind(step.items.count * config.kv_heads)
    parallel = step.tiles.work * tir.float32(cost) > tir.float32(_SERIAL_WORK)

    def body(index: Expr) -> None:
        _item(step, bind(index // config.kv_heads), bind(index % config.kv_heads))

    with tir.If(tir.And(parallel, count > 1)):
        # Items go to threads in turn: neighbours cost about the same.
        with (
            tir.Then(),
            tir.attr(tir.int32(0), "pragma_parallel_launch_point", 1),
            tir.attr(tir.int32(0), "pragma_parallel_stride_pattern", 1),
            tir.parallel(0, count) as index,
        ):
            body(index)
        with tir.Else(), tir.serial(0, count) as index:
            body(index)
    with (
        tir.serial(0, step.tiles.count) as tile,
        tir.If(step.items.first_slot[tile] >= 0),
        tir.Then(),
    ):
        _merge_tile(step, tile)


def _item(step: _Step, item: Expr, head: Expr) -> None:
    """Do one item for one KV head with the register tiles for one row or for several."""
    tile = step.items.field("tile", item)
    if step.config.tile_rows == 1:
        _attend(step, item, tile, head, 1)
        return
    with tir.If(step.tiles.rows[tile] == 1):
        with tir.Then():
            _attend(step, item, tile, head, 1)
        with tir.Else():
            _attend(step, item, tile, head, step.config.tile_rows)


def _attend(step: _Step, item: Expr, tile: Expr, head: Expr, rows: int) -> None:
    """Take a tile of up to ``rows`` rows through the item's partitions and write the result."""
    config, ragged = step.config, step.ragged
    vectors = rows * config.shared
    sequence = bind(step.tiles.sequence[tile])
    seen = step.tiles.seen(ragged, tile)
    queries = _queries(step, tile, head, rows)
    running = new_running(vectors, config.value_dim)
    size = bind(ragged.block_size[0])

    def tile_at(token: Expr) -> Expr:
        block = ragged.tables[config.group, sequence, token // size]
        return (block * size + token % size) // TILE

    with tir.serial(step.items.field("begin", item), step.items.field("end", item)) as partition:
        start = bind(partition * PARTITION)
        attend_partition(step.pools, queries, running, head, start, seen, tile_at)
    slot = step.items.field("slot", item)
    with tir.If(slot < 0):
        with tir.Then():
            _write(step, tile, head, running, vectors)
        with tir.Else():
            _keep(step, slot, head, running, vectors)


def _queries(step: _Step, tile: Expr, head: Expr, rows: int) -> Queries:
    """The query vectors of a tile; vector m is head ``m % shared`` of row ``m / shared``."""
    config = step.config
    shared, dim = config.shared, config.key_dim
    first_row, count = bind(step.tiles.row[tile]), bind(step.tiles.rows[tile])
    sequence = step.tiles.sequence[tile]
    first_end = bind(step.ragged.first_end(sequence, first_row))
    size = blocking(rows * shared, step.isa)
    column = bind(head * (shared * dim))

    def row_of(m: Expr | int) -> Expr:
        # Vectors beyond the tile's last row repeat that row; they are not written.
        return tir.min(m // shared, count - 1)

    def bounds(m: Expr | int) -> tuple[Expr, Expr]:
        end = bind(first_end if rows == 1 else first_end + row_of(m))
        return bind(step.ragged.low(end)), end

    if rows == 1:
        return Queries(lambda m, d: step.q[first_row, column + m * dim + d], bounds, size)
    copy = scratch((rows * shared, dim))
    with tir.serial(0, rows * shared) as m:
        row, start = bind(first_row + row_of(m)), bind(column + m % shared * dim)
        with tir.serial(0, dim // DIM_MULTIPLE) as part:
            d = part * DIM_MULTIPLE
            store(copy, load(step.q, row, start + d, lanes=DIM_MULTIPLE), m, d)
    return Queries(lambda m, d: copy[m, d], bounds, size)


def _write(step: _Step, tile: Expr, head: Expr, running: Running, vectors: int) -> None:
    """Write the finished rows of a tile."""
    config = step.config
    row = bind(step.tiles.row[tile])
    with tir.serial(0, step.tiles.rows[tile] * config.shared) as m:
        inverse = bind(splat(tir.float32(1) / running.norm[m], lanes=DIM_MULTIPLE))
        column = bind((head * config.shared + m % config.shared) * config.value_dim)
        with tir.serial(0, config.value_dim // DIM_MULTIPLE) as part:
            d = part * DIM_MULTIPLE
            value = load(running.total, m, d, lanes=DIM_MULTIPLE) * inverse
            store(step.out, value, row + m // config.shared, column + d)


def _keep(step: _Step, slot: Expr, head: Expr, running: Running, vectors: int) -> None:
    """Keep the result of one partition for the merge."""
    config = step.config
    place = bind(_place(config, slot, head))
    with tir.serial(0, vectors) as m:
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
    low, high = partitions_of(step.tiles.seen(step.ragged, tile))
    with tir.serial(0, config.kv_heads) as head:
        running = new_running(vectors, config.value_dim)
        with tir.serial(0, high - low) as index:
            slot = step.items.first_slot[tile] + index
            place = bind(_place(config, slot, head))
            with tir.serial(0, step.tiles.rows[tile] * config.shared) as m:
                largest, norm = bind(partial.largest[place + m]), bind(partial.norm[place + m])
                old, new = merge_factors(running, m, largest, norm)
                with tir.serial(0, config.value_dim // DIM_MULTIPLE) as part:
                    d = part * DIM_MULTIPLE
                    values = bind(load(partial.total, place + m, d, lanes=DIM_MULTIPLE))
                    merge_total(running, values, m, d, old, new)
        _write(step, tile, head, running, vectors)


def _clear(out: Expr, first: Expr, rows: Expr, width: int) -> None:
    """Zero the rows from ``first`` on."""
    with tir.serial(first, rows) as row, tir.serial(0, width // DIM_MULTIPLE) as part:
        store(out, splat(0.0, lanes=DIM_MULTIPLE), row, part * DIM_MULTIPLE)
