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
from optc.backends.tvm.kernels.attention_softmax import MASKED, Running, merge_factors, merge_total
from optc.backends.tvm.kernels.pools import TILE, KVShape
from optc.backends.tvm.kernels.script import (
    LANES,
    Expr,
    bind,
    fma,
    load,
    prefetch,
    register,
    scratch,
    splat,
    store,
    tree_max,
    tree_sum,
)

#: Tokens of a partition.
PARTITION = 256


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
        fetch: Fetch K and V ahead of their use. For so few vectors memory is the limit, and the
            processor's own prefetching ends with each tile, which is a page of its own.
    """

    value: Callable[[Expr | int, Expr], Expr]
    bounds: Callable[[Expr | int], tuple[Expr, Expr]]
    blocking: Blocking
    fetch: bool


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
    limits = (groups[0] * size.tiles, groups[1] * size.tiles)
    with tir.serial(*limits) as i:
        # Groups of tiles may reach beyond what is seen; such scores are masked, so any tile does.
        inside = bind(tir.max(tir.min(i, high - 1), low))
        store(buffers.tiles, tile_at(start + inside * TILE), i)
    with tir.serial(groups[0], groups[1]) as group:
        for_blocks(
            size,
            lambda m, count: _score(
                pools, queries, buffers, head, (group, limits[1] - 1), m, count
            ),
        )
    with tir.serial(0, size.vectors) as m:
        low_seen, end_seen = queries.bounds(m)
        own = (bind(low_seen - start), bind(end_seen - start))
        largest = _mask(pools, buffers, m, own, limits)
        norm = _exponentials(buffers, m, largest, limits)
        old, new = merge_factors(running, m, largest, norm)
        store(buffers.factors, old, m, 0)
        store(buffers.factors, new, m, 1)
    for_blocks(
        size, lambda m, count: _weigh(pools, size, buffers, running, head, (first, end), m, count)
    )


@dataclass(frozen=True)
class _Buffers:
    """Scratch of a partition: pool tiles [16]; dot products, then scores, then their exponentials
    [M, 256]; factors of the merge [M, 2]."""

    tiles: Expr
    scores: Expr
    factors: Expr


def _new_buffers(size: Blocking) -> _Buffers:
    return _Buffers(
        scratch((PARTITION // TILE,), "int32"),
        scratch((size.vectors, PARTITION)),
        scratch((size.vectors, 2)),
    )


def _score(
    pools: Pools,
    queries: Queries,
    buffers: _Buffers,
    head: Expr,
    place: tuple[Expr, Expr],
    first: Expr | int,
    count: int,
) -> None:
    """Dot products of ``count`` vectors from ``first`` on for one group of tiles; ``place`` is the
    group and the last tile of all."""
    group, last = place
    tiles = queries.blocking.tiles
    places = [bind(buffers.tiles[group * tiles + u]) for u in range(tiles)]
    sums = [[register(0.0) for _ in range(tiles)] for _ in range(count)]
    with tir.serial(0, pools.shape.key_dim) as d:
        if queries.fetch:
            _fetch(pools, buffers, head, (group * tiles, last), tiles, d)
        keys = [bind(load(pools.k, place, head, d, 0)) for place in places]
        for j in range(count):
            query = bind(splat(queries.value(first + j, d)))
            for u, key in enumerate(keys):
                sums[j][u].set(fma(key, query, sums[j][u].get()))
    for j in range(count):
        for u in range(tiles):
            store(buffers.scores, sums[j][u].get(), first + j, (group * tiles + u) * TILE)


def _fetch(
    pools: Pools, buffers: _Buffers, head: Expr, at: tuple[Expr, Expr], tiles: int, d: Expr
) -> None:
    """At step d of the scores of ``tiles`` tiles, fetch some lines of their values, and of the keys
    of as many tiles after them: tile after tile, since memory is fastest in order.

    ``at`` is the first tile and the last of all.
    """
    shape, (first, last) = pools.shape, at
    for u in range(tiles):
        line = d * tiles + u
        tile = tir.min(first + line // shape.key_dim, last)
        following = tir.min(first + tiles + line // shape.key_dim, last)
        prefetch(pools.k, bind(buffers.tiles[following]), head, line % shape.key_dim, 0)
        place = bind(tir.min(line % shape.key_dim, shape.value_dim - 1) * LANES)
        token, dim = place // shape.value_dim, place % shape.value_dim
        prefetch(pools.v, bind(buffers.tiles[tile]), head, token, dim)


def _mask(
    pools: Pools,
    buffers: _Buffers,
    m: Expr,
    seen: tuple[Expr, Expr],
    limits: tuple[Expr, Expr],
) -> Expr:
    """Scale, cap and mask the dot products of vector m, which sees tokens ``seen`` of the
    partition; returns the largest score."""
    largest = register(MASKED)
    lane_numbers = tir.ramp(0, 1, LANES)
    with tir.serial(*limits) as i:
        score = bind(load(buffers.scores, m, i * TILE) * splat(pools.scale))
        if pools.softcap:
            score = math.softcap(score, pools.softcap)
        token = bind(lane_numbers + splat(i * TILE))
        score = tir.Select(token < splat(seen[1]), score, splat(MASKED))
        score = bind(tir.Select(token >= splat(seen[0]), score, splat(MASKED)))
        store(buffers.scores, score, m, i * TILE)
        largest.set(tir.max(largest.get(), score))
    return tree_max(largest.get())


def _exponentials(buffers: _Buffers, m: Expr, largest: Expr, limits: tuple[Expr, Expr]) -> Expr:
    """Turn the scores of vector m into exp(score - largest); returns their sum."""
    sums = register(0.0)
    with tir.serial(*limits) as i:
        weight = math.exp(load(buffers.scores, m, i * TILE) - splat(largest))
        store(buffers.scores, weight, m, i * TILE)
        sums.set(sums.get() + weight)
    return tree_sum(sums.get())


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
