"""The rows of a sequence in a step, one after another, from the state of the block of the token
before them to the states that they leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import LANES, Expr, KernelBuilder, bind, splat, wide
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, store_part
from optc.backends.tvm.kernels.kv.pools import TILE


@dataclass(frozen=True)
class StepPlaces:
    """The places of a step's rows in the pools of one KV group.

    Attributes:
        group: Of G.
        slots: slot_mapping i32 [G,T].
        starts: query_starts i32 [B+1].
        lengths: kv_lengths i32 [G,B].
        tables: block_tables i32 [G,B,P].
        block_size: i32 [1].
    """

    group: int
    slots: Expr
    starts: Expr
    lengths: Expr
    tables: Expr
    block_size: Expr

    @classmethod
    def arguments(cls, builder: KernelBuilder, group: int, groups: int, rows: Expr) -> StepPlaces:
        """The arguments of a kernel, in the order of the attributes."""
        bounds, pages = builder.size(), builder.size()
        return cls(
            group,
            builder.argument("slot_mapping", (groups, rows), "int32"),
            builder.argument("query_starts", (bounds,), "int32"),
            builder.argument("kv_lengths", (groups, bounds - 1), "int32"),
            builder.argument("block_tables", (groups, bounds - 1, pages), "int32"),
            builder.argument("block_size", (1,), "int32"),
        )

    @property
    def sequences(self) -> Expr:
        """B."""
        return self.starts.shape[0] - 1


@dataclass(frozen=True)
class Walk:
    """The actions on a state, or on a part of one.

    Attributes:
        clear: Begin with zeros.
        read: Begin with the state in the tiles of the pools from one on.
        row: Take in a row of the step.
        write: Keep the state in the tiles from one on.
    """

    clear: Callable[[], None]
    read: Callable[[Expr], None]
    row: Callable[[Expr], None]
    write: Callable[[Expr], None]


def walk(places: StepPlaces, sequence: Expr, do: Walk) -> None:
    """All rows of a sequence: a state is kept behind the last one that has a slot, which drafts
    have not, and behind the last token of each block."""
    group = places.group
    first, end = bind(places.starts[sequence]), bind(places.starts[sequence + 1])
    size = bind(places.block_size[0])
    before = bind(places.lengths[group, sequence] - end)

    def tile(at: Expr) -> Expr:
        """The first of the block that has the token ``at``."""
        return wide(places.tables[group, sequence, at // size] * (size // TILE))

    with tir.If(first < end), tir.Then():
        start = bind(before + first)
        with tir.If(start > 0):
            with tir.Then():
                do.read(tile(bind(start - 1)))
            with tir.Else():
                do.clear()
        with tir.serial(0, end - first) as step:
            row = bind(first + step)
            at = bind(before + row)
            do.row(row)
            # The row behind it may be a draft: its state may not be needed.
            behind = bind(tir.min(row + 1, end - 1))
            last = tir.Or(row == end - 1, places.slots[group, behind] < 0)
            ends = tir.Or(last, at % size == size - 1)
            # A token without a slot may be in a block that is another sequence's too.
            with tir.If(tir.And(ends, places.slots[group, row] >= 0)), tir.Then():
                do.write(tile(at))


def clear_behind(places: StepPlaces, out: Expr, rows: Expr, width: int) -> None:
    """Zero the rows of ``out`` [T,width] behind all sequences."""
    begin = places.starts[places.sequences]
    with tir.serial(0, rows - begin) as row:
        for_vectors(width, lambda o, n: store_part(out, splat(0.0), n, begin + row, o))


def for_part(
    part: Expr, width: int, vectors: int, run: Callable[[Expr | int, tuple[int, ...]], None]
) -> None:
    """``run(start, counts)`` for one of the parts of so many ``vectors`` that ``width`` columns
    have: its first column, and the columns of each vector."""
    most = vectors * LANES
    whole, left = divmod(width, most)
    rest = tuple(min(LANES, left - start) for start in range(0, left, LANES))
    if not rest:
        run(bind(part * most), (LANES,) * vectors)
    elif not whole:
        run(0, rest)
    else:
        with tir.If(part < whole):
            with tir.Then():
                run(bind(part * most), (LANES,) * vectors)
            with tir.Else():
                run(whole * most, rest)
