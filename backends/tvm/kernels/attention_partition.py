"""Attention of a few query vectors over one partition of a sequence: 256 tokens, at fixed absolute
positions.

A query vector is one head of one row; all that share a KV head are computed together, so that each
K and V is loaded once for them. Whatever tile of vectors is computed, one vector's operations are
the same in the same order: a dot product runs over the dimensions, a weighted sum over the tokens,
both as one chain; masked tokens add exact zeros; the largest score is that of the whole partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels import math
from optc.backends.tvm.kernels.pools import DIM_MULTIPLE, TILE, KVShape
from optc.backends.tvm.kernels.script import (
    LANES,
    Expr,
    bind,
    fma,
    load,
    register,
    scratch,
    splat,
    store,
    tree_max,
    tree_sum,
)

#: Tokens of a partition.
PARTITION = 256
#: Score of a token that is not seen; far below any real one, and finite.
MASKED = -1.0e30


@dataclass(frozen=True)
class Blocking:
    """Register tiles of an instruction set for some number of query vectors.

    Attributes:
        vectors: Query vectors that are computed together.
        block: Of these, how many share a register tile.
        tiles: KV tiles of 16 tokens whose scores are summed at once; divides 16.
        columns: Vectors of 16 dimensions whose weighted sums are summed at once.
    """

    vectors: int
    block: int
    tiles: int
    columns: int


def blocking(vectors: int, isa: Isa) -> Blocking:
    """The register tiles for ``vectors`` query vectors; they change speed, never results."""
    budget, widest = (24, 8) if isa.lanes == LANES else (6, 6)
    dividing = [size for size in range(widest, widest // 2, -1) if vectors % size == 0]
    block = vectors if vectors <= widest else dividing[0] if dividing else widest
    tiles = 1
    while tiles < 8 and 2 * tiles * block <= budget:
        tiles *= 2
    return Blocking(vectors, block, tiles, max(1, budget // block))


@dataclass(frozen=True)
class Pools:
    """K and V of one layer, their shape, and how scores are made of dot products."""

    k: Expr
    v: Expr
    shape: KVShape
    scale: float
    softcap: float


@dataclass(frozen=True)
class Queries:
    """The query vectors of one work item.

    Attributes:
        value: ``value(m, d)`` is dimension d of vector m.
        bounds: ``bounds(m)`` is the range of tokens, first and end, that vector m sees.
        blocking: How many there are, and their register tiles.
    """

    value: Callable[[Expr | int, Expr], Expr]
    bounds: Callable[[Expr | int], tuple[Expr, Expr]]
    blocking: Blocking


@dataclass(frozen=True)
class Running:
    """Online softmax over partitions (Milakov and Gimelshein, 2018), M query vectors.

    Attributes:
        largest: float32 [M], the largest score so far.
        norm: float32 [M], sum of exp(score - largest).
        total: float32 [M, Dv], values weighted by exp(score - largest).
    """

    largest: Expr
    norm: Expr
    total: Expr


def new_running(vectors: int, value_dim: int) -> Running:
    """Scratch for ``vectors`` query vectors that have seen nothing yet."""
    running = Running(scratch((vectors,)), scratch((vectors,)), scratch((vectors, value_dim)))
    with tir.serial(0, vectors) as m:
        store(running.largest, tir.float32(MASKED), m)
        store(running.norm, tir.float32(0), m)
        with tir.serial(0, value_dim // DIM_MULTIPLE) as part:
            zero = splat(0.0, lanes=DIM_MULTIPLE)
            store(running.total, zero, m, part * DIM_MULTIPLE)
    return running


def merge_factors(running: Running, m: Expr, largest: Expr, norm: Expr) -> tuple[Expr, Expr]:
    """Take a partition's largest score and norm into those of vector m; returns the factors of the
    old total and of the partition's. A partition without a seen token changes nothing."""
    before = bind(running.largest[m])
    after = bind(tir.max(before, largest))
    old = math.exp(before - after)
    seen = largest > tir.float32(MASKED)
    new = bind(tir.Select(seen, math.exp(largest - after), tir.float32(0)))
    store(running.largest, after, m)
    store(running.norm, fma(bind(running.norm[m]), old, bind(norm * new)), m)
    return old, new


def merge_total(running: Running, values: Expr, m: Expr, d: Expr, old: Expr, new: Expr) -> None:
    """Take a partition's weighted values into dimensions d.. of the total of vector m."""
    lanes = int(values.ty.dtype.lanes)
    kept = bind(load(running.total, m, d, lanes=lanes))
    added = bind(values * splat(new, lanes=lanes))
    store(running.total, fma(kept, splat(old, lanes=lanes), added), m, d)


def attend_partition(
    pools: Pools,
    queries: Queries,
    running: Running,
    head: Expr,
    start: Expr,
    seen: tuple[Expr, Expr],
    tile_at: Callable[[Expr], Expr],
) -> None:
    """Take the partition that starts at token ``start`` into ``running``.

    Args:
        pools: K and V.
        queries: The query vectors, all of KV head ``head``.
        running: Their state.
        head: KV head.
        start: First token of the partition.
        seen: Range of tokens that at least one vector sees; some of it lies in the partition.
        tile_at: ``tile_at(token)`` is the pool's tile of a token in that range.
    """
    size = queries.blocking
    first = bind(tir.max(seen[0] - start, 0))
    end = bind(tir.min(seen[1] - start, PARTITION))
    low, high = bind(first // TILE), bind((end + (TILE - 1)) // TILE)
    groups = (
        bind(low // size.tiles),
        bind((high + (size.tiles - 1)) // size.tiles),
    )
    buffers = _new_buffers(size)
    with tir.serial(groups[0] * size.tiles, groups[1] * size.tiles) as i:
        # Groups of tiles may reach beyond what is seen; such scores are masked, so any tile does.
        inside = bind(tir.max(tir.min(i, high - 1), low))
        store(buffers.tiles, tile_at(start + inside * TILE), i)
    with tir.serial(0, size.vectors) as m:
        store(buffers.maxima, splat(MASKED), m, 0)
    with tir.serial(groups[0], groups[1]) as group:
        for_blocks(
            size, lambda m, count: _score(pools, queries, buffers, head, start, group, m, count)
        )
    with tir.serial(0, size.vectors) as m:
        limits = (groups[0] * size.tiles, groups[1] * size.tiles)
        largest, norm = _exponentials(buffers, m, limits)
        old, new = merge_factors(running, m, largest, norm)
        store(buffers.factors, old, m, 0)
        store(buffers.factors, new, m, 1)
    for_blocks(
        size, lambda m, count: _weigh(pools, size, buffers, running, head, (first, end), m, count)
    )


@dataclass(frozen=True)
class _Buffers:
    """Scratch of a partition: pool tiles [16], scores and then their exponentials [M, 256],
    largest scores by lane [M, 16], factors of the merge [M, 2]."""

    tiles: Expr
    scores: Expr
    maxima: Expr
    factors: Expr


def _new_buffers(size: Blocking) -> _Buffers:
    return _Buffers(
        scratch((PARTITION // TILE,), "int32"),
        scratch((size.vectors, PARTITION)),
        scratch((size.vectors, LANES)),
        scratch((size.vectors, 2)),
    )


def _score(
    pools: Pools,
    queries: Queries,
    buffers: _Buffers,
    head: Expr,
    start: Expr,
    group: Expr,
    first: Expr | int,
    count: int,
) -> None:
    """Scores of ``count`` vectors from ``first`` on for one group of tiles."""
    tiles = queries.blocking.tiles
    places = [bind(buffers.tiles[group * tiles + u]) for u in range(tiles)]
    sums = [[register(0.0) for _ in range(tiles)] for _ in range(count)]
    with tir.serial(0, pools.shape.key_dim) as d:
        keys = [bind(load(pools.k, place, head, d, 0)) for place in places]
        for j in range(count):
            query = bind(splat(queries.value(first + j, d)))
            for u, key in enumerate(keys):
                sums[j][u].set(fma(key, query, sums[j][u].get()))
    lane_numbers = tir.ramp(0, 1, LANES)
    for j in range(count):
        low, end = queries.bounds(first + j)
        largest = register(load(buffers.maxima, first + j, 0))
        for u in range(tiles):
            offset = bind((group * tiles + u) * TILE)
            score = bind(sums[j][u].get() * splat(pools.scale))
            if pools.softcap:
                score = math.softcap(score, pools.softcap)
            below = lane_numbers < splat(end - start - offset)
            score = tir.Select(below, score, splat(MASKED))
            above = lane_numbers >= splat(low - start - offset)
            score = bind(tir.Select(above, score, splat(MASKED)))
            store(buffers.scores, score, first + j, offset)
            largest.set(tir.max(largest.get(), score))
        store(buffers.maxima, largest.get(), first + j, 0)


def _exponentials(buffers: _Buffers, m: Expr, limits: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Turn the scores of vector m into exp(score - largest); returns the largest and the sum."""
    largest = tree_max(load(buffers.maxima, m, 0))
    sums = register(0.0)
    with tir.serial(*limits) as i:
        weight = math.exp(load(buffers.scores, m, i * TILE) - splat(largest))
        store(buffers.scores, weight, m, i * TILE)
        sums.set(sums.get() + weight)
    return largest, tree_sum(sums.get())


def _weigh(
    pools: Pools,
    size: Blocking,
    buffers: _Buffers,
    running: Running,
    head: Expr,
    seen: tuple[Expr, Expr],
    first: Expr | int,
    count: int,
) -> None:
    """Weighted sums of values for ``count`` vectors from ``first`` on, merged into the totals."""
    for columns in _column_chunks(pools.shape.value_dim, size.columns):
        sums = [[register(0.0, lanes=lanes) for _, lanes in columns] for _ in range(count)]
        with tir.serial(seen[0] // TILE, (seen[1] + (TILE - 1)) // TILE) as i:
            place = bind(buffers.tiles[i])
            token_low = bind(tir.max(seen[0] - i * TILE, 0))
            token_end = bind(tir.min(seen[1] - i * TILE, TILE))
            with tir.serial(token_low, token_end) as token:
                values = [bind(load(pools.v, place, head, token, d, lanes=n)) for d, n in columns]
                for j in range(count):
                    weight = bind(buffers.scores[first + j, i * TILE + token])
                    for total, value, (_, lanes) in zip(sums[j], values, columns, strict=True):
                        total.set(fma(value, splat(weight, lanes=lanes), total.get()))
        for j in range(count):
            old = bind(buffers.factors[first + j, 0])
            new = bind(buffers.factors[first + j, 1])
            for total, (d, _) in zip(sums[j], columns, strict=True):
                merge_total(running, total.get(), first + j, d, old, new)


def _column_chunks(value_dim: int, most: int) -> list[list[tuple[int, int]]]:
    """Vectors (first dimension, lanes) that cover a value, in even chunks of at most ``most``."""
    vectors = [(d, min(LANES, value_dim - d)) for d in range(0, value_dim, LANES)]
    chunks = -(-len(vectors) // most)
    each = -(-len(vectors) // chunks)
    return [vectors[i : i + each] for i in range(0, len(vectors), each)]


def for_blocks(size: Blocking, body: Callable[[Expr | int, int], None]) -> None:
    """``body(m, count)`` for runs of ``count`` query vectors from ``m`` on."""
    blocks, rest = divmod(size.vectors, size.block)
    if blocks == 1:
        body(0, size.block)
    else:
        with tir.serial(0, blocks) as block:
            body(block * size.block, size.block)
    if rest:
        body(blocks * size.block, rest)
