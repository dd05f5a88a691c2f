"""Linear attention: each head folds the tokens of a sequence, one after another, into a matrix,
which the layer's pools hold at the end of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import exp
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    Register,
    bind,
    fma,
    for_rows,
    hold,
    kernel,
    register,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.kernels.kv.pools import TILE, KVShape, pool_arguments
from optc.backends.tvm.kernels.kv.recurrent_state import Columns
from optc.backends.tvm.kernels.kv.state_walk import (
    StepPlaces,
    Walk,
    clear_behind,
    for_part,
    walk,
)
from optc.errors import UnsupportedError
from optc.runtime.executable.recurrent_state import state_slots, state_width

#: Vectors of columns that pass over the rows together: with two sums each, enough chains to hide
#: the latency of an addition in AVX2's 16 registers, and a part of the state that the first-level
#: cache holds.
_VECTORS = 2


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention of ``heads`` heads.

    Attributes:
        heads: H, a multiple of ``key_heads``.
        key_heads: Hk, heads of queries and keys; H / Hk heads of values share one.
        key_dim: Dk.
        value_dim: Dv; a block has a place for states of these sizes
            (`optc.runtime.executable.recurrent_state`).
        scale: Of the outputs.
        delta: The delta rule: what the state says of a key is taken from its value.
        group: Row of slot_mapping, kv_lengths and block_tables.
        groups: G.
        decays: Decays of a head: 1, or one of each key.
        rates: Decays are one of each value, to be multiplied by rates of each key and value.
        beta: Values have a factor for each head.

    Raises:
        UnsupportedError: The kernel does not take the sizes.
    """

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    scale: float
    delta: bool
    group: int = 0
    groups: int = 1
    decays: int = 1
    rates: bool = False
    beta: bool = True

    def __post_init__(self) -> None:
        if self.key_heads <= 0 or self.heads <= 0 or self.heads % self.key_heads:
            raise UnsupportedError(
                f"{self.heads} heads are no multiple of {self.key_heads} key heads",
                where="linear attention",
                hint="each head of keys serves a whole number of heads",
            )
        if min(self.key_dim, self.value_dim) <= 0 or not self.slots:
            raise UnsupportedError(
                f"the CPU kernel takes no states of {self.key_dim} x {self.value_dim}",
                where="linear attention",
                hint="multiples of 16 have a place in a block",
            )
        if self.decays not in (1, self.key_dim) or (self.rates and (self.delta or self.decays > 1)):
            raise UnsupportedError(
                f"the CPU kernel takes no {self.decays} decays of a head with these rules",
                where="linear attention",
                hint="one, one of each key, or rates without the delta rule",
            )

    @property
    def slots(self) -> int:
        """Slots of a block that a state lies in."""
        return state_slots(self.key_dim, self.value_dim)

    @property
    def shape(self) -> KVShape:
        """Of the pools: in each, these slots hold half of a state."""
        dim = state_width(self.key_dim, self.value_dim)
        return KVShape(self.heads, dim, dim)

    @property
    def rows_per_tile(self) -> int:
        """Rows of a state in a tile of either pool."""
        return self.key_dim * TILE // (2 * self.slots)


@dataclass(frozen=True)
class _Operands:
    config: LinearAttention
    q: Expr
    k: Expr
    v: Expr
    decay: Expr
    beta: Expr | None
    rates: Expr | None
    places: StepPlaces
    pools: tuple[Expr, Expr]
    out: Expr


@dataclass(frozen=True)
class _Item:
    """Columns of the state of one sequence and head, which need nothing of the others."""

    operands: _Operands
    sequence: Expr
    columns: Columns

    @property
    def head(self) -> Expr:
        """Of values."""
        return self.columns.head

    def value(self, j: int) -> Expr:
        """The start of vector ``j`` in the rows of v and of the output."""
        return self.head * self.columns.width + self.columns.start + j * LANES


def linear_attention(config: LinearAttention, isa: Isa) -> tvm.tirx.PrimFunc:
    """q f32 [T,Hk*Dk], k f32 [T,Hk*Dk], v f32 [T,H*Dv], decay f32 [T,H*decays] or [T,H*Dv],
    [beta f32 [T,H]], [rates f32 [Dk,H*Dv]], slot_mapping i32 [G,T], query_starts i32 [B+1],
    kv_lengths i32 [G,B], block_tables i32 [G,B,P], block_size i32 [1], k_pool and v_pool (in place)
    -> out f32 [T,H*Dv].

    A row's token does S = exp(decay) S, or exp(rates * decay) S, then S = S + k u' with
    u = beta (v - S'k), without delta beta v; its output is scale S'q. Rows without a slot, which
    drafts are, come last: the state in the pools is the one before them. ``isa`` changes nothing:
    every instruction set runs the same operations.
    """
    heads, queries = config.heads, config.key_heads * config.key_dim
    values = heads * config.value_dim
    with kernel("linear_attention") as builder:
        rows, tiles = builder.size(), builder.size()
        operands = _Operands(
            config,
            builder.argument("q", (rows, queries)),
            builder.argument("k", (rows, queries)),
            builder.argument("v", (rows, values)),
            builder.argument("decay", (rows, values if config.rates else heads * config.decays)),
            builder.argument("beta", (rows, heads)) if config.beta else None,
            builder.argument("rates", (config.key_dim, values)) if config.rates else None,
            StepPlaces.arguments(builder, config.group, config.groups, rows),
            pool_arguments(builder, tiles, config.shape),
            builder.argument("out", (rows, values)),
        )
        parts = -(-config.value_dim // (_VECTORS * LANES))
        # The product with the rows might not fit into an index.
        parallel = rows > SERIAL_WORK // (values * config.key_dim)
        items = operands.places.sequences * (heads * parts)
        for_rows(items, parallel, _item_of(operands, parts))
        clear_behind(operands.places, operands.out, rows, values)
    return builder.finish()


def _item_of(operands: _Operands, parts: int) -> Callable[[Expr], None]:
    config = operands.config

    def body(index: Expr) -> None:
        part, pair = bind(index % parts), bind(index // parts)
        head, sequence = bind(pair % config.heads), bind(pair // config.heads)

        def run(start: Expr | int, counts: tuple[int, ...]) -> None:
            state = scratch((config.key_dim, len(counts) * LANES))
            place = (operands.pools, config.rows_per_tile, head)
            columns = Columns(*place, config.value_dim, start, counts, state)
            _run(_Item(operands, sequence, columns))

        for_part(part, config.value_dim, _VECTORS, run)

    return body


def _run(item: _Item) -> None:
    """All rows of the sequence in this step."""
    columns = item.columns
    do = Walk(columns.clear, columns.read, lambda row: _row(item, row), columns.write)
    walk(item.operands.places, item.sequence, do)


#: What a vector of a row of the state is multiplied by: of its place and the vector's number.
_Keep = Callable[[Expr, int], Expr]


def _row(item: _Item, row: Expr) -> None:
    """One token: the state changes, and the row of the output is made."""
    operands, columns = item.operands, item.columns
    keep = _keep(item, row)
    updates = _updates(item, row, keep)

    def fold(place: Expr, key: Expr, query: Expr, j: int, total: Register) -> None:
        value = hold(fma(key, updates[j].get(), keep(place, j) * columns.at(place, j)))
        columns.set(place, j, value)
        total.set(fma(query, value, total.get()))

    for j, total in enumerate(_sums(item, row, fold)):
        value = splat(operands.config.scale) * total
        store_part(operands.out, value, columns.counts[j], row, item.value(j))


def _keep(item: _Item, row: Expr) -> _Keep:
    """exp(decay) of a row."""
    operands, config = item.operands, item.operands.config
    if operands.rates is not None:
        rates = operands.rates
        steps = [
            register(load_part(operands.decay, count, row, item.value(j)))
            for j, count in enumerate(item.columns.counts)
        ]

        def scanned(place: Expr, j: int) -> Expr:
            rate = load_part(rates, item.columns.counts[j], place, item.value(j))
            return exp(steps[j].get() * rate)

        return scanned
    if config.decays == 1:
        whole = register(splat(exp(operands.decay[row, item.head])))
        return lambda place, j: whole.get()
    factors = scratch((-(-config.key_dim // LANES) * LANES,))
    start = bind(item.head * config.key_dim)

    def each(offset: Expr | int, count: int) -> None:
        store(factors, exp(load_part(operands.decay, count, row, start + offset)), offset)

    for_vectors(config.key_dim, each)
    return lambda place, j: splat(factors[place])


def _updates(item: _Item, row: Expr, keep: _Keep) -> list[Register]:
    """u of each vector."""
    operands, columns = item.operands, item.columns
    values = [
        load_part(operands.v, count, row, item.value(j)) for j, count in enumerate(columns.counts)
    ]
    if operands.config.delta:
        # The state is not scaled before: its products with the key are, or their sum.
        whole = operands.config.decays == 1

        def recall(place: Expr, key: Expr, query: Expr, j: int, total: Register) -> None:
            weight = key if whole else hold(key * keep(place, j))
            total.set(fma(weight, columns.at(place, j), total.get()))

        less = hold(splat(0.0) - keep(tir.int32(0), 0)) if whole else splat(-1.0)
        values = [fma(less, t, v) for t, v in zip(_sums(item, row, recall), values, strict=True)]
    if operands.beta is None:
        return [register(value) for value in values]
    rate = register(splat(operands.beta[row, item.head]))
    return [register(rate.get() * value) for value in values]


def _sums(
    item: _Item, row: Expr, add: Callable[[Expr, Expr, Expr, int, Register], None]
) -> list[Expr]:
    """A sum for each vector, over the rows of the state by ``add(place, key, query, j, total)``:
    one of those at even places and one of the others, then both."""
    operands, config = item.operands, item.operands.config
    start = bind(item.head // (config.heads // config.key_heads) * config.key_dim)
    totals = [[register(0.0) for _ in range(2)] for _ in item.columns.counts]
    with tir.serial(0, config.key_dim // 2) as d:
        for part in range(2):
            place = 2 * d + part
            key, query = (splat(x[row, start + place]) for x in (operands.k, operands.q))
            for j, total in enumerate(totals):
                add(place, key, query, j, total[part])
    return [hold(first.get() + second.get()) for first, second in totals]
