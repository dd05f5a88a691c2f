"""What the parts of attention share: the pools, the query vectors, and one partition's scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention_blocking import Blocking
from optc.backends.tvm.kernels.attention_operands import Numbers, Operands
from optc.backends.tvm.kernels.pools import TILE, KVShape
from optc.backends.tvm.kernels.script import (
    Expr,
    Register,
    bind,
    load,
    prefetch,
    register,
    scratch,
    splat,
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

    def fetch_value(
        self, tile: Expr, head: Expr, part: Expr, parts: int, *, rest: bool = False
    ) -> None:
        """Fetch one of ``parts`` equal parts of a tile's values into the second-level cache; of the
        ``rest`` of the tile, what is left for the softmax."""
        self._fetch(self.v, self.shape.value_dim, (tile, head), (part, parts), rest)

    def fetch_key(
        self, tile: Expr, head: Expr, part: Expr, parts: int, *, rest: bool = False
    ) -> None:
        """The same of a tile's keys."""
        self._fetch(self.k, self.shape.key_dim, (tile, head), (part, parts), rest)

    def _fetch(
        self, pool: Expr, dim: int, at: tuple[Expr, Expr], turn: tuple[Expr, int], rest: bool
    ) -> None:
        line = TILE * self.shape.type.pack  # elements of a cache line
        lines = self.shape.type.width(dim) // line
        # The softmax takes a good part of the time of narrow types, little of that of float32:
        # memory should be as busy meanwhile as it is during the dot products.
        middle = lines * 3 // 4 if self.shape.type.pack > 1 else lines
        first, end = (middle, lines) if rest else (0, middle)
        part, parts = turn
        each = -(-(end - first) // parts)
        for i in range(each):
            prefetch(pool, *at, tir.min(part * each + (first + i), end - 1) * line)


@dataclass(frozen=True)
class Queries:
    """The query vectors of one work item.

    Attributes:
        operands: Of the dot products with keys.
        bounds: ``bounds(m)`` is the range of tokens, first and end, that vector m sees.
        blocking: How many there are, and their register tiles.
        fetch: Condition: fetch K and V ahead of their use. For few rows memory is the limit, and
            the processor's own prefetching ends with each tile, which is a page of its own; a
            prompt's rows find them in the caches.
    """

    operands: Operands
    bounds: Callable[[Expr | int], tuple[Expr, Expr]]
    blocking: Blocking
    fetch: Expr


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

    @property
    def head(self) -> Expr:
        """KV head."""
        return self.place.head


def fetching(queries: Queries, body: Callable[[], None]) -> None:
    """Do ``body``, which fetches, if the queries want it."""
    with tir.If(queries.fetch), tir.Then():
        body()


def new_buffers(pools: Pools, size: Blocking) -> Buffers:
    """Scratch for ``size.vectors`` query vectors."""
    return Buffers(
        scratch((PARTITION,)),
        scratch((size.vectors, PARTITION)),
        pools.numbers.weights(size.vectors, PARTITION),
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
