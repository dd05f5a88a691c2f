"""The convolution of each channel along a sequence: the rows before those of the step are a state
in the layer's pools, as that of a recurrence is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    bind,
    fma,
    for_rows,
    hold,
    kernel,
    load,
    register,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import load_part, store_part
from optc.backends.tvm.kernels.kv.pools import TILE, KVShape, pool_arguments
from optc.backends.tvm.kernels.kv.state_walk import (
    StepPlaces,
    Walk,
    clear_behind,
    for_part,
    walk,
)
from optc.runtime.executable.recurrent_state import row_stride

#: Vectors of channels that pass over the rows together.
_VECTORS = 4


@dataclass(frozen=True)
class CausalConv:
    """A convolution of ``channels`` channels over ``kernel`` rows.

    Attributes:
        channels: C, even; the pool of keys has the first half of them, that of values the other.
        kernel: K, at least 2.
        width: Numbers of a slot in each pool (`optc.runtime.executable.recurrent_state`).
        bias: Each channel has one.
        group: Row of slot_mapping, kv_lengths and block_tables.
        groups: G.
    """

    channels: int
    kernel: int
    width: int
    bias: bool = False
    group: int = 0
    groups: int = 1

    @property
    def half(self) -> int:
        """Channels of a pool."""
        return self.channels // 2


@dataclass(frozen=True)
class _Operands:
    config: CausalConv
    x: Expr
    weight: Expr
    bias: Expr | None
    places: StepPlaces
    pools: tuple[Expr, Expr]
    out: Expr


def causal_conv(config: CausalConv, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,C], weight f32 [K,C], [bias f32 [C]], slot_mapping i32 [G,T], query_starts i32
    [B+1], kv_lengths i32 [G,B], block_tables i32 [G,B,P], block_size i32 [1], k_pool and v_pool (in
    place) -> out f32 [T,C].

    Row K - 1 - j of the weight multiplies the row j before; sums begin with the bias and the row
    itself. The last K - 1 rows with a slot are kept. ``isa`` changes nothing: every instruction set
    runs the same operations.

    Raises:
        UnsupportedError: The pools have a shape without a kernel.
    """
    channels = config.channels
    with kernel("causal_conv") as builder:
        rows, tiles = builder.size(), builder.size()
        operands = _Operands(
            config,
            builder.argument("x", (rows, channels)),
            builder.argument("weight", (config.kernel, channels)),
            builder.argument("bias", (channels,)) if config.bias else None,
            StepPlaces.arguments(builder, config.group, config.groups, rows),
            pool_arguments(builder, tiles, KVShape(1, config.width, config.width)),
            builder.argument("out", (rows, channels)),
        )
        parts = -(-config.half // (_VECTORS * LANES))
        # The product with the rows might not fit into an index.
        parallel = rows > SERIAL_WORK // (channels * config.kernel)
        items = operands.places.sequences * (2 * parts)
        for_rows(items, parallel, _item_of(operands, parts))
        clear_behind(operands.places, operands.out, rows, channels)
    return builder.finish()


def _item_of(operands: _Operands, parts: int) -> Callable[[Expr], None]:
    def body(index: Expr) -> None:
        part, pair = bind(index % parts), bind(index // parts)
        pool, sequence = bind(pair % 2), bind(pair // 2)

        def run(start: Expr | int, counts: tuple[int, ...]) -> None:
            for which in range(2):  # a buffer has no place in a register
                with tir.If(pool == which), tir.Then():
                    _run(_Channels(operands, which, start, counts), sequence)

        for_part(part, operands.config.half, _VECTORS, run)

    return body


@dataclass(frozen=True)
class _Channels:
    """Channels of one pool, which need nothing of the others.

    Attributes:
        operands: Of the kernel.
        pool: 0, that of keys, or 1, that of values.
        start: The first of the pool's channels.
        counts: Channels of each vector.
    """

    operands: _Operands
    pool: int
    start: Expr | int
    counts: tuple[int, ...]

    def channel(self, j: int) -> Expr | int:
        """The first of vector ``j`` in rows of x."""
        return self.pool * self.operands.config.half + self.start + j * LANES

    def place(self, row: int, j: int) -> tuple[Expr | int, Expr | int]:
        """Of vector ``j`` in a row of the state: the tile behind the block's first, and the number
        in it."""
        config = self.operands.config
        number = row * row_stride(config.channels) + self.start + j * LANES
        size = TILE * config.width
        return number // size, number % size


def _run(part: _Channels, sequence: Expr) -> None:
    """All rows of a sequence in this step."""
    rows = part.operands.config.kernel - 1
    state = scratch((rows, len(part.counts) * LANES))
    pool = part.operands.pools[part.pool]
    vectors = list(enumerate(part.counts))

    def clear() -> None:
        for row in range(rows):
            for j, _ in vectors:
                store(state, splat(0.0), row, j * LANES)

    def read(tile: Expr) -> None:
        for row in range(rows):
            for j, count in vectors:
                behind, start = part.place(row, j)
                store(state, load_part(pool, count, tile + behind, 0, start), row, j * LANES)

    def write(tile: Expr) -> None:
        for row in range(rows):
            for j, count in vectors:
                behind, start = part.place(row, j)
                value = load(state, row, j * LANES)
                store_part(pool, value, count, tile + behind, 0, start)

    walk(part.operands.places, sequence, Walk(clear, read, lambda r: _row(part, state, r), write))


def _row(part: _Channels, state: Expr, row: Expr) -> None:
    """One row of the output; its own row becomes the last of the state."""
    operands, kernel_rows = part.operands, part.operands.config.kernel
    for j, count in enumerate(part.counts):
        at = part.channel(j)
        own = hold(load_part(operands.x, count, row, at))
        begin = splat(0.0) if operands.bias is None else load_part(operands.bias, count, at)
        taps = [load_part(operands.weight, count, tap, at) for tap in range(kernel_rows)]
        sums = register(fma(own, taps[-1], begin))
        for behind in range(1, kernel_rows):
            one = load(state, kernel_rows - 1 - behind, j * LANES)
            sums.set(fma(one, taps[kernel_rows - 1 - behind], sums.get()))
        store_part(operands.out, sums.get(), count, row, at)
        for older in range(kernel_rows - 2):
            store(state, load(state, older + 1, j * LANES), older, j * LANES)
        store(state, own, kernel_rows - 2, j * LANES)
