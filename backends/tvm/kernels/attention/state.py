"""The shared state of the parts of attention: pools, query vectors, and one partition's scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optc.backends.tvm.kernels.attention.blocking import Blocking
from optc.backends.tvm.kernels.attention.operands import Numbers, Operands
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    Register,
    bind,
    register,
    scratch,
    splat,
    wide,
)
from optc.backends.tvm.kernels.kv.pools import KVShape

#: A tile of the pools and a KV head, as int64.
At = tuple[Expr, Expr]
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

    def scales(self, pool: Expr, at: At, dim: int) -> Expr:
        """float32 scales of a tile's 16 tokens."""
        return self.numbers.scales(pool, at, self.shape.type.scales_at(dim))


@dataclass(frozen=True)
class Shifts:
    """Terms of scores by distance.

    Attributes:
        runs: float32 [H, N] as of `optc.backends.tvm.bias_runs`.
        head: ``head(m)`` is the head of vector m.
    """

    runs: Expr
    head: Callable[[Expr], Expr]


@dataclass(frozen=True)
class Queries:
    """The query vectors of one work item.

    Attributes:
        operands: Of the dot products with keys.
        own: ``own(m)`` is the token of vector m itself.
        bounds: ``bounds(m)`` is the range of tokens, first and end, that vector m sees; of none,
            the end may lie before the first.
        blocking: How many there are at most, and their register tiles.
        count: How many there are.
        fetch: Condition: fetch K and V ahead of their use. For few rows memory is the limit, and
            the processor's own prefetching ends with each tile, which is a page of its own; a
            prompt's rows find them in the caches.
        slope: ``slope(m)`` is what vector m's scores lose for each token of distance; None where
            they lose nothing.
        shifts: What is added to scores by distance; None is nothing.
    """

    operands: Operands
    own: Callable[[Expr | int], Expr]
    bounds: Callable[[Expr | int], tuple[Expr, Expr]]
    blocking: Blocking
    count: Expr | int
    fetch: Expr
    slope: Callable[[Expr], Expr] | None = None
    shifts: Shifts | None = None


@dataclass(frozen=True)
class Place:
    """A partition of one KV head in the pools.

    Attributes:
        start: First token.
        head: KV head.
        tiles: int32 [16], the pool's tiles; some tile or other where none of the tokens is seen.
    """

    start: Expr
    head: Expr
    tiles: Expr

    def at(self, i: Expr) -> At:
        """The place of tile ``i`` of the partition."""
        return wide(self.tiles[i]), wide(self.head)


@dataclass(frozen=True)
class Buffers:
    """Scratch of a partition.

    Attributes:
        scales: float32 [256], of values.
        scores: float32 [M, 256], and then their exponentials times the scales.
        weights: The exponentials as operands.
        largest: float32 [M], what exponents are relative to.
        norms: float32 [M], sums of the exponentials.
        products: float32 [M], largest exponential times its scale.
        factors: float32 [M, 2], of the merge.
    """

    scales: Expr
    scores: Expr
    weights: Operands
    largest: Expr
    norms: Expr
    products: Expr
    factors: Expr


@dataclass(frozen=True)
class Part:
    """One partition: what `attend_partition` has been given, and the range of its tiles."""

    pools: Pools
    queries: Queries
    buffers: Buffers
    place: Place
    following: Place
    limits: tuple[Expr, Expr]


def new_buffers(pools: Pools, size: Blocking) -> Buffers:
    """Scratch for ``size.vectors`` query vectors."""
    return Buffers(
        scratch((PARTITION,)),
        scratch((size.vectors, PARTITION)),
        pools.numbers.weights(size.room, PARTITION),
        scratch((size.vectors,)),
        scratch((size.vectors,)),
        scratch((size.vectors,)),
        scratch((size.vectors, 2)),
    )


def new_sums(
    numbers: Numbers, operands: Operands, vectors: tuple[Expr | int, int], planes: int, columns: int
) -> list[list[list[Register]]]:
    """Totals [vectors][columns][planes] for some vectors of operands, a first one and a number."""
    first, count = vectors

    def start(m: Expr | int, plane: int) -> Expr | int:
        if operands.start is None or plane < planes - 1:
            return 0
        return bind(splat(operands.start[m]))

    starts = [[start(first + j, plane) for plane in range(planes)] for j in range(count)]
    return [
        [[register(value, numbers.totals) for value in each] for _ in range(columns)]
        for each in starts
    ]
