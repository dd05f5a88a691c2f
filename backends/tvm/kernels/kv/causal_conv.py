"""The convolution of each channel along a sequence: rows of the step are read from the step, those
before it from the layer's pools, into which the step's rows are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    bind,
    fma,
    for_rows,
    kernel,
    register,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.kernels.kv.kv_write import write_key, write_value
from optc.backends.tvm.kernels.kv.pools import TILE, KVShape, k_element, pool_arguments, v_element


@dataclass(frozen=True)
class CausalConv:
    """A convolution of ``channels`` channels over ``kernel`` rows.

    Attributes:
        channels: C, a multiple of 16; keys have the first half of them, values the other.
        kernel: K, at least 2.
        bias: Each channel has one.
        group: Row of slot_mapping, kv_lengths and block_tables.
        groups: G.
    """

    channels: int
    kernel: int
    bias: bool = False
    group: int = 0
    groups: int = 1


@dataclass(frozen=True)
class _Operands:
    config: CausalConv
    isa: Isa
    x: Expr
    weight: Expr
    bias: Expr | None
    slots: Expr
    starts: Expr
    lengths: Expr
    tables: Expr
    block_size: Expr
    pools: tuple[Expr, Expr]
    out: Expr

    @property
    def half(self) -> int:
        """Channels of a pool."""
        return self.config.channels // 2

    @property
    def shape(self) -> KVShape:
        """Of the pools."""
        return KVShape(1, self.half, self.half)


def causal_conv(config: CausalConv, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,C], weight f32 [K,C], [bias f32 [C]], slot_mapping i32 [G,T], query_starts i32
    [B+1], kv_lengths i32 [G,B], block_tables i32 [G,B,P], block_size i32 [1], k_pool and v_pool (in
    place) -> out f32 [T,C].

    Row K - 1 - j of the weight multiplies the row j before; sums begin with the bias and the row
    itself. Rows with slot -1 are not written. ``isa`` changes how rows are stored, not which.

    Raises:
        UnsupportedError: The pools have a shape without a kernel.
    """
    channels = config.channels
    shape = KVShape(1, channels // 2, channels // 2)
    with kernel("causal_conv") as builder:
        rows, bounds, pages, tiles = (builder.size() for _ in range(4))
        x = builder.argument("x", (rows, channels))
        weight = builder.argument("weight", (config.kernel, channels))
        bias = builder.argument("bias", (channels,)) if config.bias else None
        slots = builder.argument("slot_mapping", (config.groups, rows), "int32")
        starts = builder.argument("query_starts", (bounds,), "int32")
        lengths = builder.argument("kv_lengths", (config.groups, bounds - 1), "int32")
        tables = builder.argument("block_tables", (config.groups, bounds - 1, pages), "int32")
        block_size = builder.argument("block_size", (1,), "int32")
        pools = pool_arguments(builder, tiles, shape)
        out = builder.argument("out", (rows, channels))
        operands = _Operands(
            *(config, isa, x, weight, bias, slots, starts, lengths, tables, block_size),
            *(pools, out),
        )
        body = _row_of(operands, bounds)
        for_rows(rows, rows * (channels * config.kernel) > SERIAL_WORK, body)
    return builder.finish()


def _row_of(operands: _Operands, bounds: Expr) -> Callable[[Expr], None]:
    config = operands.config

    def body(row: Expr) -> None:
        sequence = _sequence_of(operands, bounds, row)
        first, end = bind(operands.starts[sequence]), operands.starts[sequence + 1]
        at = bind(operands.lengths[config.group, sequence] - end + row)
        _write(operands, row)
        _begin(operands, row)
        for behind in range(1, config.kernel):
            with tir.If(row - behind >= first):
                with tir.Then():
                    _add_row(operands, row, behind)
                with tir.Else(), tir.If(at >= behind), tir.Then():
                    _add_pooled(operands, row, behind, sequence, bind(at - behind))

    return body


def _sequence_of(operands: _Operands, bounds: Expr, row: Expr) -> Expr:
    """The sequence of a row; of one behind all sequences, the last."""
    passed = register(tir.int32(0), "int32", 1)
    with tir.serial(0, bounds - 2) as other:
        ended = operands.starts[other + 1] <= row
        passed.set(passed.get() + tir.cast(ended, "int32"))
    return bind(passed.get())


def _write(operands: _Operands, row: Expr) -> None:
    """The row into its slot."""
    half, shape = operands.half, operands.shape
    slot = bind(operands.slots[operands.config.group, row])
    key, value, head = scratch((half,)), scratch((half,)), tir.int32(0)
    with tir.If(slot >= 0), tir.Then():
        for part, start in ((key, 0), (value, half)):
            _copy(part, operands.x, row, start, half)
        write_key(operands.pools[0], shape, slot, head, key)
        write_value(operands.pools[1], shape, slot, head, value, operands.isa)


def _copy(part: Expr, x: Expr, row: Expr, start: int, width: int) -> None:
    for_vectors(width, lambda o, n: store_part(part, load_part(x, n, row, start + o), n, o))


def _begin(operands: _Operands, row: Expr) -> None:
    """The bias and the row itself."""
    last = operands.config.kernel - 1

    def begin(o: Expr | int, n: int) -> None:
        sums = splat(0.0) if operands.bias is None else load_part(operands.bias, n, o)
        own = load_part(operands.x, n, row, o)
        store_part(operands.out, fma(own, load_part(operands.weight, n, last, o), sums), n, row, o)

    for_vectors(operands.config.channels, begin)


def _add_row(operands: _Operands, row: Expr, behind: int) -> None:
    """A row of this step."""

    def read(o: Expr | int, n: int) -> Expr:
        return load_part(operands.x, n, row - behind, o)

    _add(operands, row, behind, 0, operands.config.channels, read)


def _add_pooled(operands: _Operands, row: Expr, behind: int, sequence: Expr, at: Expr) -> None:
    """The row of the token ``at`` in its sequence, from the pools."""
    config, half, shape = operands.config, operands.half, operands.shape
    size = bind(operands.block_size[0])
    block = operands.tables[config.group, sequence, at // size]
    slot = bind(block * size + at % size)
    tile, offset = bind(slot // TILE), bind(slot % TILE)
    keys = scratch((half,))
    with tir.serial(0, half) as d:
        store(keys, operands.pools[0][tile, 0, k_element(shape, offset, d)], d)
    start = bind(v_element(shape, offset, 0))
    _add(operands, row, behind, 0, half, lambda o, n: load_part(keys, n, o))
    _add(
        *(operands, row, behind, half, half),
        lambda o, n: load_part(operands.pools[1], n, tile, 0, start + o),
    )


def _add(
    operands: _Operands,
    row: Expr,
    behind: int,
    start: int,
    width: int,
    read: Callable[[Expr | int, int], Expr],
) -> None:
    """Add ``width`` channels from ``start`` on, each by its weight."""
    tap = operands.config.kernel - 1 - behind

    def add(o: Expr | int, n: int) -> None:
        sums = load_part(operands.out, n, row, start + o)
        product = fma(read(o, n), load_part(operands.weight, n, tap, start + o), sums)
        store_part(operands.out, product, n, row, start + o)

    for_vectors(width, add)
