"""The cut of one step's attention into work items; computed by the kernel itself.

A tile is a run of rows of one sequence. Normally one item takes a tile through all partitions of
its sequence. If there are too few tiles to keep the threads busy, each partition of a tile is an
item of its own, and their results are merged afterwards, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.state import PARTITION
from optc.backends.tvm.kernels.dsl.script import Expr, bind, register, scratch, store, workspace
from optc.backends.tvm.kernels.kv.pools import TILE

#: KV tiles of a partition.
TILES = PARTITION // TILE
#: Tiles times KV heads from which on partitions are not items of their own.
ENOUGH_ITEMS = 32


@dataclass(frozen=True)
class Ragged:
    """The step's description: query_starts [B+1], kv_lengths [G,B], block_tables [G,B,P],
    block_size [1], with B sequences, and which group, window and chunk the layer has. With
    ``recent``, a row's latest tokens, as many as its window, are read from other pools, by it.
    Where rows are not ``causal``, they see the tokens behind them, too, within the window."""

    sequences: Expr
    starts: Expr
    lengths: Expr
    tables: Expr
    block_size: Expr
    group: int
    window: int
    chunk: int
    recent: Ragged | None = None
    causal: bool = True

    @property
    def spared(self) -> int:
        """Number of a row's latest tokens that are read from other pools."""
        return 0 if self.recent is None else self.recent.window

    def first_end(self, sequence: Expr, row: Expr) -> Expr:
        """Tokens of ``sequence`` that row ``row`` of the step sees: itself and all before."""
        return self.lengths[self.group, sequence] - self.starts[sequence + 1] + row + 1

    def low(self, end: Expr) -> Expr:
        """First token that the row which sees up to ``end`` sees."""
        low = tir.max(end - self.window, 0) if self.window else tir.int32(0)
        return tir.max(low, (end - 1) // self.chunk * self.chunk) if self.chunk else low

    def seen(self, sequence: Expr, row: Expr, rows: Expr | int) -> tuple[Expr, Expr]:
        """Range of tokens that at least one of ``rows`` rows from ``row`` on sees, less those that
        all are spared. It has one token at least, which may be masked for every row."""
        first_end = bind(self.first_end(sequence, row))
        if not self.causal:
            return self.around(sequence, first_end - 1, first_end + (rows - 2))
        low, end = bind(self.low(first_end)), bind(first_end + (rows - 1))
        return low, bind(tir.max(end - self.spared, low + 1)) if self.spared else end

    def around(self, sequence: Expr, first: Expr, last: Expr) -> tuple[Expr, Expr]:
        """Range of tokens that at least one of the rows of tokens ``first`` to ``last`` sees, where
        rows are not causal."""
        length = bind(self.lengths[self.group, sequence])
        if not self.window:
            return tir.int32(0), length
        low = bind(tir.max(first - (self.window - 1), 0))
        return low, bind(tir.min(last + self.window, length))

    def partitions(self, sequence: Expr, row: Expr, rows: Expr | int) -> tuple[Expr, Expr, Expr]:
        """First partition of what these rows see and the one after the last; and the one after the
        last where the partitions of their latest tokens are counted on behind."""
        low, high = partitions_of(self.seen(sequence, row, rows))
        if self.recent is None:
            return low, high, high
        first, end = partitions_of(self.recent.seen(sequence, row, rows))
        return low, high, bind(high + (end - first))

    def find_tiles(self, tiles: Expr, sequence: Expr, start: Expr, seen: tuple[Expr, Expr]) -> None:
        """The pool's tiles of the partition that starts at token ``start``, into ``tiles`` [16].
        Beyond the tokens ``seen`` there may be no blocks: the nearest that is seen stands there."""
        first, last = bind(seen[0] // TILE), bind((seen[1] - 1) // TILE)
        per_block = bind(self.block_size[0] // TILE)
        begin = bind(start // TILE)
        number = bind(tir.max(tir.min(begin, last), first))
        block = register(0, "int32", 1)
        within = register(0, "int32", 1)
        block.set(number // per_block)
        within.set(number % per_block)
        with tir.serial(0, TILES) as i:
            place = self.tables[self.group, sequence, block.get()] * per_block + within.get()
            store(tiles, place, i)
            steps = tir.And(begin + i >= first, begin + i < last)
            after = bind(within.get() + tir.cast(steps, "int32"))
            wraps = bind(after == per_block)
            block.set(block.get() + tir.cast(wraps, "int32"))
            within.set(tir.Select(wraps, tir.int32(0), after))


@dataclass(frozen=True)
class Tiles:
    """Runs of rows of one sequence. Arrays are int32 with room for every row of the step.

    Attributes:
        count: Number of tiles.
        sequence: Sequence of each tile.
        row: First row of each tile.
        rows: Rows of each tile.
        partitions: Sum over tiles of the partitions that they see.
        work: Sum over rows of the tokens that they see, float32.
    """

    count: Expr
    sequence: Expr
    row: Expr
    rows: Expr
    partitions: Expr
    work: Expr

    def seen(self, ragged: Ragged, tile: Expr) -> tuple[Expr, Expr]:
        """Range of tokens that at least one row of the tile sees."""
        return ragged.seen(self.sequence[tile], self.row[tile], self.rows[tile])

    def spanned(self, ragged: Ragged, tile: Expr) -> tuple[Expr, Expr]:
        """The tile's first partition, and the one after the last."""
        low, _, end = ragged.partitions(self.sequence[tile], self.row[tile], self.rows[tile])
        return low, end


_FIELDS = ("tile", "begin", "end", "slot")


@dataclass(frozen=True)
class Items:
    """The work items, to be done for every KV head.

    Attributes:
        count: Number of items.
        fields: int32 [4, items]: tile; first partition; partition after the last; where the
            item's partial result goes, or -1 if the item does all of its tile.
        slots: Number of partial results.
        first_slot: int32, slot of each tile's first partition; -1 if the tile is not split.
    """

    count: Expr
    fields: Expr
    slots: Expr
    first_slot: Expr

    def field(self, name: str, item: Expr) -> Expr:
        """One of ``tile``, ``begin``, ``end``, ``slot`` of an item."""
        return bind(self.fields[_FIELDS.index(name), item])


def partitions_of(seen: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """First partition and the one after the last of a range of tokens."""
    return bind(seen[0] // PARTITION), bind((seen[1] + (PARTITION - 1)) // PARTITION)


def plan_tiles(ragged: Ragged, total_rows: Expr, rows_of_tile: int) -> Tiles:
    """Cut the sequences into tiles of at most ``rows_of_tile`` rows."""
    sequence, row, rows = (scratch((total_rows,), "int32") for _ in range(3))
    count = register(0, "int32", 1)
    partitions = register(0, "int32", 1)
    work = register(0.0, lanes=1)
    tiles = Tiles(None, sequence, row, rows, None, None)
    with tir.serial(0, ragged.sequences) as b:
        start, end = bind(ragged.starts[b]), bind(ragged.starts[b + 1])
        with tir.serial(0, (end - start + (rows_of_tile - 1)) // rows_of_tile) as i:
            tile, first = bind(count.get()), bind(start + i * rows_of_tile)
            store(sequence, b, tile)
            store(row, first, tile)
            store(rows, tir.min(end - first, rows_of_tile), tile)
            seen = tiles.seen(ragged, tile)
            low, high = tiles.spanned(ragged, tile)
            partitions.set(partitions.get() + (high - low))
            work.set(
                work.get()
                + tir.cast(seen[1] - seen[0], "float32") * tir.cast(rows[tile], "float32")
            )
            count.set(tile + 1)
    return replace(
        tiles,
        count=bind(count.get()),
        partitions=bind(partitions.get()),
        work=bind(work.get()),
    )


@contextmanager
def plan_items(
    ragged: Ragged, tiles: Tiles, total_rows: Expr, kv_heads: int, parallel: Expr
) -> Iterator[Items]:
    """One item a tile, or one a partition where ``parallel`` items would else be too few."""
    few = tiles.count * kv_heads < ENOUGH_ITEMS
    split = bind(tir.cast(tir.And(few, parallel), "int32"))
    capacity = bind(tir.max(tiles.count, tiles.partitions * split))
    first_slot = scratch((total_rows,), "int32")
    count, slots = register(0, "int32", 1), register(0, "int32", 1)
    with workspace((len(_FIELDS), capacity), "int32") as fields:

        def add(*values: Expr) -> None:
            item = bind(count.get())
            for field, value in enumerate(values):
                store(fields, value, field, item)
            count.set(item + 1)

        with tir.serial(0, tiles.count) as tile:
            low, high = tiles.spanned(ragged, tile)
            with tir.If(tir.And(split == 1, high - low > 1)):
                with tir.Then():
                    store(first_slot, slots.get(), tile)
                    with tir.serial(low, high) as partition:
                        slot = bind(slots.get())
                        add(tile, partition, partition + 1, slot)
                        slots.set(slot + 1)
                with tir.Else():
                    store(first_slot, tir.int32(-1), tile)
                    add(tile, low, high, tir.int32(-1))
        yield Items(bind(count.get()), fields, bind(slots.get()), first_slot)
