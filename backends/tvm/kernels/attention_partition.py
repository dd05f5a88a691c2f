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

from optc.backends.tvm.kernels import math
from optc.backends.tvm.kernels.attention_blocking import Blocking, column_chunks, for_blocks
from optc.backends.tvm.kernels.attention_int8 import STEPS
from optc.backends.tvm.kernels.attention_operands import Numbers, Operands
from optc.backends.tvm.kernels.attention_softmax import MASKED, Running, merge_factors, merge_total
from optc.backends.tvm.kernels.pools import TILE, KVShape
from optc.backends.tvm.kernels.script import (
    LANES,
    Expr,
    Register,
    bind,
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
class Pools:
    """K and V of one layer, their shape and arithmetic, and how scores are made of dot products."""

    k: Expr
    v: Expr
    shape: KVShape
    numbers: Numbers
    scale: float
    softcap: float

    @property
    def k_words(self) -> int:
        """Vectors of words of a K tile."""
        return self.shape.key_dim // self.shape.type.pack

    def scales(self, pool: Expr, tile: Expr, head: Expr, dim: int) -> Expr:
        """float32 scales of a tile's 16 tokens."""
        last = load(pool, tile, head, TILE * dim, lanes=TILE * self.shape.type.pack)
        return bind(tir.reinterpret(last, dtype=f"float32x{TILE}"))


@dataclass(frozen=True)
class Queries:
    """The query vectors of one work item.

    Attributes:
        operands: Of the dot products with keys.
        bounds: ``bounds(m)`` is the range of tokens, first and end, that vector m sees.
        blocking: How many there are, and their register tiles.
        fetch: Fetch K and V ahead of their use. For so few vectors memory is the limit, and the
            processor's own prefetching ends with each tile, which is a page of its own.
    """

    operands: Operands
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
    buffers = _new_buffers(pools, size)
    limits = (groups[0] * size.tiles, groups[1] * size.tiles)
    with tir.serial(*limits) as i:
        # Groups of tiles may reach beyond what is seen; such scores are masked, so any tile does.
        inside = bind(tir.max(tir.min(i, high - 1), low))
        store(buffers.tiles, tile_at(start + inside * TILE), i)
    part = _Part(pools, queries, buffers, head, limits)
    with tir.serial(groups[0], groups[1]) as group:
        for_blocks(size, lambda m, count: _score(part, group, m, count))
    with tir.serial(0, size.vectors) as m:
        low_seen, end_seen = queries.bounds(m)
        own = (bind(low_seen - start), bind(end_seen - start))
        largest, largest_scale = _mask(part, m, own)
        norm = _exponentials(part, m, largest, largest_scale)
        old, new = merge_factors(running, m, largest, norm)
        if pools.numbers.scaled:
            new = new * buffers.weights.factor[m]
        store(buffers.factors, old, m, 0)
        store(buffers.factors, new, m, 1)
    for_blocks(size, lambda m, count: _weigh(part, running, (first, end), m, count))


@dataclass(frozen=True)
class _Buffers:
    """Scratch of a partition: pool tiles [16]; dot products, then scores [M, 256]; the scores'
    exponentials as operands; factors of the merge [M, 2]."""

    tiles: Expr
    scores: Expr
    weights: Operands
    factors: Expr


@dataclass(frozen=True)
class _Part:
    """One partition: what `attend_partition` has been given, and the range of its tiles."""

    pools: Pools
    queries: Queries
    buffers: _Buffers
    head: Expr
    limits: tuple[Expr, Expr]


def _new_buffers(pools: Pools, size: Blocking) -> _Buffers:
    return _Buffers(
        scratch((PARTITION // TILE,), "int32"),
        scratch((size.vectors, PARTITION)),
        pools.numbers.weights(size.vectors, PARTITION),
        scratch((size.vectors, 2)),
    )


def _score(part: _Part, group: Expr, first: Expr | int, count: int) -> None:
    """Dot products of ``count`` vectors from ``first`` on for one group of tiles, times the
    tokens' scales."""
    pools, numbers = part.pools, part.pools.numbers
    operands, tiles = part.queries.operands, part.queries.blocking.tiles
    places = [bind(part.buffers.tiles[group * tiles + u]) for u in range(tiles)]
    sums = _new_sums(numbers, count, tiles)
    with tir.serial(0, pools.k_words) as word:
        if part.queries.fetch:
            _fetch(part, group * tiles, word)
        keys = [numbers.words(pools.k, (place, part.head), word * TILE, TILE) for place in places]
        for j in range(count):
            for plane in range(numbers.planes):
                operand = numbers.operand(operands, first + j, plane, word)
                for u, key in enumerate(keys):
                    numbers.dot(sums[j][u][plane], key, operand)
    for u, place in enumerate(places):
        scales = None
        if numbers.scaled:
            scales = pools.scales(pools.k, place, part.head, pools.shape.key_dim)
        for j in range(count):
            value = numbers.value([s.get() for s in sums[j][u]], operands, first + j)
            value = value if scales is None else value * scales
            store(part.buffers.scores, value, first + j, (group * tiles + u) * TILE)


def _new_sums(numbers: Numbers, vectors: int, columns: int) -> list[list[list[Register]]]:
    """Zeroed totals [vectors][columns][planes]."""
    return [
        [[register(0, numbers.totals) for _ in range(numbers.planes)] for _ in range(columns)]
        for _ in range(vectors)
    ]


def _fetch(part: _Part, first: Expr, word: Expr) -> None:
    """While the scores of a group of tiles from ``first`` on are computed, at one of the words,
    fetch some lines of their values, and of the keys of as many tiles after them: tile after tile,
    since memory is fastest in order."""
    pools, tiles = part.pools, part.queries.blocking.tiles
    last, steps = part.limits[1] - 1, pools.k_words
    elements = LANES * pools.shape.type.pack  # of a cache line
    v_lines = pools.shape.type.width(pools.shape.value_dim) // elements
    for u in range(tiles):
        line = word * tiles + u
        tile = tir.min(first + line // steps, last)
        following = bind(part.buffers.tiles[tir.min(first + tiles + line // steps, last)])
        prefetch(pools.k, following, part.head, line % steps * elements)
        place = bind(part.buffers.tiles[tile])
        prefetch(pools.v, place, part.head, tir.min(line % steps, v_lines - 1) * elements)


def _mask(part: _Part, m: Expr, seen: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Turn the dot products of vector m, which sees tokens ``seen`` of the partition, into scores,
    in powers of two; returns the next integer from the largest on, and the largest scale of a value
    that is seen (0 where values have none)."""
    pools, scores = part.pools, part.buffers.scores
    factor = pools.scale if pools.softcap else pools.scale * math.LOG2_E
    if pools.numbers.scaled:
        unit = bind(splat(part.queries.operands.factor[m] * tir.float32(factor)))
    else:
        unit = splat(factor)
    largest, largest_scale = register(MASKED), register(0.0)
    lane_numbers = tir.ramp(0, 1, LANES)
    with tir.serial(*part.limits) as i:
        score = bind(load(scores, m, i * TILE) * unit)
        if pools.softcap:
            score = math.softcap(score, pools.softcap) * splat(math.LOG2_E)
        token = bind(lane_numbers + splat(i * TILE))

        def only_seen(value: Expr, other: float, token: Expr = token) -> Expr:
            value = tir.Select(token < splat(seen[1]), value, splat(other))
            return bind(tir.Select(token >= splat(seen[0]), value, splat(other)))

        score = only_seen(score, MASKED)
        store(scores, score, m, i * TILE)
        largest.set(tir.max(largest.get(), score))
        if pools.numbers.scaled:
            scales = _value_scales(part, i)
            largest_scale.set(tir.max(largest_scale.get(), only_seen(scales, 0.0)))
    return bind(math.ceil(tree_max(largest.get()))), tree_max(largest_scale.get())


def _value_scales(part: _Part, i: Expr) -> Expr:
    pools = part.pools
    return pools.scales(pools.v, bind(part.buffers.tiles[i]), part.head, pools.shape.value_dim)


def _exponentials(part: _Part, m: Expr, largest: Expr, largest_scale: Expr) -> Expr:
    """Turn the scores of vector m into weights 2 ** (score - largest), as operands; returns their
    sum."""
    numbers, weights = part.pools.numbers, part.buffers.weights
    sums, stored = register(0.0), register(0, "int32")
    # Without a token that is seen there is no scale, and all scores are masked.
    scale = bind(tir.max(largest_scale, tir.float32(1e-30)))
    steps = bind(splat(tir.float32(STEPS) / scale))
    with tir.serial(*part.limits) as i:
        score = bind(load(part.buffers.scores, m, i * TILE))
        weight = math.exp2(score - splat(largest))
        units = None
        if numbers.scaled:
            # The minimum with a number is a number: scales of tokens not seen may be none.
            units = bind(tir.min(_value_scales(part, i), splat(scale)) * steps)
        counted = numbers.put(weights, weight, m, i * TILE, units, stored)
        sums.set(sums.get() + counted)
    numbers.close(weights, m, scale / tir.float32(STEPS), stored)
    return tree_sum(sums.get())


def _weigh(
    part: _Part, running: Running, seen: tuple[Expr, Expr], first: Expr | int, count: int
) -> None:
    """Weighted sums of values for ``count`` vectors from ``first`` on, merged into the totals."""
    pools, numbers, weights = part.pools, part.pools.numbers, part.buffers.weights
    dim, pack = pools.shape.value_dim, pools.shape.type.pack
    each = TILE // pack  # words of a tile
    for columns in column_chunks(dim, part.queries.blocking.columns):
        sums = _new_sums(numbers, count, len(columns))
        with tir.serial(seen[0] // TILE, (seen[1] + (TILE - 1)) // TILE) as i:
            place = bind(part.buffers.tiles[i])
            low = bind(tir.max(seen[0] - i * TILE, 0))
            end = bind(tir.min(seen[1] - i * TILE, TILE))
            with tir.serial(low // pack, (end + (pack - 1)) // pack) as word:
                kept = numbers.kept(word, low, end)
                values = [
                    numbers.words(pools.v, (place, part.head), word * dim + d, lanes, kept)
                    for d, lanes in columns
                ]
                for j in range(count):
                    for plane in range(numbers.planes):
                        operand = numbers.operand(weights, first + j, plane, i * each + word)
                        for total, value in zip(sums[j], values, strict=True):
                            numbers.dot(total[plane], value, operand)
        for j in range(count):
            old = bind(part.buffers.factors[first + j, 0])
            new = bind(part.buffers.factors[first + j, 1])
            for total, (d, lanes) in zip(sums[j], columns, strict=True):
                value = numbers.value([plane.get() for plane in total], weights, first + j)
                if lanes < LANES:
                    value = bind(tir.vectorlow(f"float32x{lanes}", value))
                merge_total(running, value, first + j, d, old, new)
