"""Attention of some rows of one sequence, for one KV head: their query vectors, partition after
partition, and the write of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.blocking import blocking, tile_vectors
from optc.backends.tvm.kernels.attention.partition import attend_partition
from optc.backends.tvm.kernels.attention.plan import TILES, Ragged, partitions_of
from optc.backends.tvm.kernels.attention.softmax import (
    LEAST,
    Running,
    merge_factors,
    new_running,
)
from optc.backends.tvm.kernels.attention.state import PARTITION, Place, Pools, Queries, Shifts
from optc.backends.tvm.kernels.dsl import math
from optc.backends.tvm.kernels.dsl.script import Expr, bind, load, scratch, splat, store
from optc.backends.tvm.kernels.kv.pools import for_parts
from optc.errors import UnsupportedError

#: Largest key dimension of queries of 15 bits over int8 and int4: sums of products stay within
#: int32 in units of their lower digit. Those of 8 bits have no such bound that a head would reach.
TWO_PLANES_KEY_DIM = 512
#: Most new rows of a sequence for which its K and V are fetched ahead.
_FETCHED_ROWS = 16


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
        kv_dtype: Type of the pools.
        chunk: Tokens of a chunk, of which rows see their own only; 0 = no chunks.
        sinks: Each head has a logit that joins the softmax's largest and sum, and has no value.
        slopes: Each head has a slope that a token's score loses for every token between it and
            the row (ALiBi: Press et al., arXiv:2108.12409), behind the softcap.
        distances: Numbers of each head's run of biases (`optc.backends.tvm.bias_runs`), which are
            added to scores by the distance of a token, behind the softcap and the slopes; 0 = there
            are none.
        query_bits: 8 if queries are multiplied with int8 or int4 pools as int8, rounded half to
            even in units of each vector's largest magnitude / 127, which halves that work; 0 if
            they keep 15 bits. Other pools know 0 only.
        recent: How many of its latest tokens a row reads from int8 pools of their own; 0 is none.
        recent_group: Row of block_tables for those.
        causal: Rows see none of what lies behind them. False: they see all tokens of their
            sequence, or those less than ``window`` away on either side.
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
    query_bits: int = 0
    chunk: int = 0
    sinks: bool = False
    slopes: bool = False
    recent: int = 0
    recent_group: int = 0
    causal: bool = True
    distances: int = 0

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UnsupportedError(
                f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly",
                where="PagedAttention",
                hint="the number of heads must be a multiple of that of KV heads",
            )

        if not self.causal and (self.chunk or self.recent or self.slopes or self.distances):
            raise UnsupportedError(
                "rows that see what lies behind them have no chunks, slopes, biases by distance "
                "and recent pools",
                where="PagedAttention",
                hint="such attention belongs to encoders; a window is possible",
            )
        integral = self.kv_dtype in ("int8", "int4")
        if self.query_bits not in ((0, 8) if integral else (0,)):
            raise UnsupportedError(
                f"queries of {self.query_bits} bits have no kernel for {self.kv_dtype} pools",
                where="PagedAttention",
                hint="int8 and int4 pools take 8 and 0 (all), others only 0",
            )
        if integral and not self.query_bits and self.key_dim > TWO_PLANES_KEY_DIM:
            raise UnsupportedError(
                f"keys of {self.key_dim} channels are too wide for queries of 15 bits over "
                f"{self.kv_dtype} pools",
                where="PagedAttention",
                hint=f"at most {TWO_PLANES_KEY_DIM}; use kv-cache.query_bits=8, or dtype=bfloat16",
            )

    @property
    def shared(self) -> int:
        """Heads that share a KV head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class Operands:
    """The operands of all work of one call: q [T,H*Dk], the pools, those of the latest tokens or
    none, the ragged step, sinks and slopes [H] and biases [H,N] or none, out [T,H*Dv]."""

    config: PagedAttention
    isa: Isa
    q: Expr
    pools: Pools
    recent: Pools | None
    ragged: Ragged
    sinks: Expr
    slopes: Expr
    biases: Expr
    out: Expr

    @property
    def tile_rows(self) -> int:
        """Rows of a tile of several rows."""
        return max(1, tile_vectors(self.pools.numbers) // self.config.shared)


@dataclass(frozen=True)
class Start:
    """The start of some work: its sequence, KV head, first partition, and the range of tokens that
    its rows see."""

    sequence: Expr
    head: Expr
    partition: Expr
    seen: tuple[Expr, Expr]


@dataclass(frozen=True)
class RowWork:
    """Some rows of one sequence and one KV head.

    Attributes:
        sequence: The sequence.
        row: First row of the operands.
        rows: Number of rows.
        most: Number of rows that the register tiles are made for; at least ``rows``.
        head: KV head.
        partitions: First partition, and the one after the last (`Ragged.partitions`).
        then: Where this thread's next work begins.
    """

    sequence: Expr
    row: Expr
    rows: Expr
    most: int
    head: Expr
    partitions: tuple[Expr, Expr]
    then: Start


def attend_rows(operands: Operands, work: RowWork) -> Running:
    """Take the rows through their partitions."""
    config, ragged = operands.config, operands.ragged
    seen = ragged.seen(work.sequence, work.row, work.rows)
    queries = _queries(operands, work)
    running = new_running(work.most * config.shared, config.value_dim)
    first, end = work.partitions
    high = partitions_of(seen)[1]
    own_end = end if operands.recent is None else bind(tir.min(end, high))
    tiles = scratch((TILES,), "int32")
    ahead = scratch((TILES,), "int32")
    ragged.find_tiles(tiles, work.sequence, first * PARTITION, seen)
    with tir.serial(first, own_end) as partition:
        place = Place(bind(partition * PARTITION), work.head, tiles)
        following = _find_following(operands, work, seen, (partition, own_end), ahead)
        attend_partition(operands.pools, queries, running, place, following, seen)
        store(tiles, load(ahead, 0), 0)
    if operands.recent is not None and ragged.recent is not None:
        latest = (bind(tir.max(first, high) - high), bind(end - high))
        _attend_recent(operands.recent, ragged.recent, work, queries, running, latest)
    return running


def _attend_recent(
    pools: Pools,
    ragged: Ragged,
    work: RowWork,
    queries: Queries,
    running: Running,
    partitions: tuple[Expr, Expr],
) -> None:
    """Take the rows through some partitions of their latest tokens."""
    seen = ragged.seen(work.sequence, work.row, work.rows)
    low = partitions_of(seen)[0]
    queries = replace(queries, bounds=_bounds(ragged, work.sequence, queries.own))
    tiles = scratch((TILES,), "int32")
    with tir.serial(*partitions) as index:
        start = bind((low + index) * PARTITION)
        ragged.find_tiles(tiles, work.sequence, start, seen)
        place = Place(start, work.head, tiles)
        attend_partition(pools, queries, running, place, place, seen)


def _find_following(
    operands: Operands,
    work: RowWork,
    seen: tuple[Expr, Expr],
    now: tuple[Expr, Expr],
    ahead: Expr,
) -> Place:
    """Find the place after the partition ``now``, which another index ends: the rows' next one, or
    that of the next work."""
    ragged, then, partition = operands.ragged, work.then, now[0]
    last = bind(partition + 1 >= now[1])
    sequence = bind(tir.Select(last, then.sequence, work.sequence))
    start = bind(tir.Select(last, then.partition, partition + 1) * PARTITION)
    low, end = (bind(tir.Select(last, a, b)) for a, b in zip(then.seen, seen, strict=True))
    ragged.find_tiles(ahead, sequence, start, (low, end))
    return Place(start, bind(tir.Select(last, then.head, work.head)), ahead)


def _bounds(
    ragged: Ragged, sequence: Expr, own: Callable[[Expr | int], Expr]
) -> Callable[[Expr | int], tuple[Expr, Expr]]:
    """See `Queries`."""

    def bounds(m: Expr | int) -> tuple[Expr, Expr]:
        if not ragged.causal:
            return ragged.around(sequence, own(m), own(m))
        end = bind(own(m) + 1)
        return bind(ragged.low(end)), bind(end - ragged.spared) if ragged.spared else end

    return bounds


def _queries(operands: Operands, work: RowWork) -> Queries:
    """The query vectors; vector m is head ``m % shared`` of row ``m / shared``."""
    config, ragged = operands.config, operands.ragged
    shared, dim = config.shared, config.key_dim
    first_end = bind(ragged.first_end(work.sequence, work.row))
    numbers = operands.pools.numbers
    size = blocking(work.most * shared, numbers, operands.isa)
    # The register tiles of vectors are of numbers that the compiler knows.
    known = work.most == 1 or not size.amx
    count = work.most * shared if known else bind(work.rows * shared)
    column = bind(work.head * (shared * dim))

    def row_of(m: Expr | int) -> Expr:
        # Vectors beyond the last row repeat that row; they are not written.
        return tir.min(m // shared, work.rows - 1)

    def own(m: Expr | int) -> Expr:
        return bind((first_end if work.most == 1 else first_end + row_of(m)) - 1)

    copy = scratch((work.most * shared, dim))
    with tir.serial(0, count) as m:
        row, start = bind(work.row + row_of(m)), bind(column + m % shared * dim)
        for_parts(
            dim,
            lambda d, lanes: store(copy, load(operands.q, row, start + d, lanes=lanes), m, d),
        )
    new = ragged.starts[work.sequence + 1] - ragged.starts[work.sequence]
    fetch = bind(new <= _FETCHED_ROWS)
    slopes = operands.slopes
    slope = None if slopes is None else lambda m: bind(slopes[work.head * shared + m % shared])

    vectors = numbers.queries(copy, count, size.room, dim)
    bounds = _bounds(ragged, work.sequence, own)
    shifts = None
    if operands.biases is not None:
        shifts = Shifts(operands.biases, lambda m: bind(work.head * shared + m % shared))
    return Queries(vectors, own, bounds, size, count, fetch, slope, shifts)


def write_rows(operands: Operands, work: RowWork, running: Running) -> None:
    """Write finished rows."""
    config = operands.config
    with tir.serial(0, work.rows * config.shared) as m:
        head = bind(work.head * config.shared + m % config.shared)
        if operands.sinks is None:
            inverse = bind(tir.float32(1) / running.norm[m])
        else:
            inverse = _with_sink(running, m, operands.sinks[head])
        column = bind(head * config.value_dim)
        row = bind(work.row + m // config.shared)

        def write(d: Expr, lanes: int) -> None:
            value = load(running.total, m, d, lanes=lanes) * splat(inverse, lanes=lanes)
            store(operands.out, value, row, column + d)

        for_parts(config.value_dim, write)


def _with_sink(running: Running, m: Expr, sink: Expr) -> Expr:
    """The factor of the total of vector m, once its head's sink is in the softmax: merged last
    of all, as a partition without values would be, it is the same however a step is cut."""
    power = bind(sink * tir.float32(math.LOG2_E))
    largest = bind(tir.max(math.ceil(power), tir.float32(LEAST)))
    old, _ = merge_factors(running, m, largest, math.exp2(bind(power - largest)))
    return bind(old / running.norm[m])
