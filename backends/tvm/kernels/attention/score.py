"""The scores of a partition: products of queries and keys."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.fetch import fetch, fetch_scales
from optc.backends.tvm.kernels.attention.operands import Words
from optc.backends.tvm.kernels.attention.state import Part, new_sums
from optc.backends.tvm.kernels.dsl import math
from optc.backends.tvm.kernels.dsl.script import Expr, bind, splat, store, wide
from optc.backends.tvm.kernels.kv.pools import TILE


def score(part: Part, group: Expr, first: Expr | int, count: int) -> None:
    """Scores of ``count`` vectors from ``first`` on for one group of tiles, in units that
    `score_unit` tells."""
    pools, numbers = part.pools, part.pools.numbers
    operands, tiles = part.queries.operands, part.queries.blocking.tiles
    places = [part.place.at(group * tiles + u) for u in range(tiles)]
    sums = new_sums(numbers, operands, (first, count), numbers.query_planes, tiles)
    for u in range(tiles):
        fetch_scales(part, group * tiles + u, keys=False)
    # Half of the tiles fetch in every other step. The number of words is even, because dimensions
    # are multiples of 8.
    with tir.serial(0, pools.k_words // 2) as pair:
        for odd in range(2):
            for u in range(odd, tiles, 2):
                fetch(part, "score", group * tiles + u, pair, pools.k_words // 2)
            word = bind(wide(pair) * 2 + odd)
            keys = [numbers.keys(pools.k, Words(place, word, 0, TILE)) for place in places]
            for j in range(count):
                for plane in range(numbers.query_planes):
                    operand = numbers.operand(operands, first + j, plane, word)
                    for u, key in enumerate(keys):
                        numbers.dot(sums[j][u][plane], key, operand)
    scales: list[Expr] = []
    if numbers.scaled:
        dim = pools.shape.key_dim
        scales = [pools.scales(pools.k, place, dim) for place in places]
    for j in range(count):
        for u in range(tiles):
            value = numbers.value([s.get() for s in sums[j][u]])
            scale = scales[u] if scales else None
            put_score(part, value, scale, first + j, (group * tiles + u) * TILE)


def put_score(part: Part, value: Expr, scale: Expr | None, m: Expr | int, token: Expr) -> None:
    """Store the scores of vector m and 16 tokens: their dot products, times the tokens' scales."""
    value = value if scale is None else value * scale
    if part.pools.softcap:
        whole = bind(value * splat(_product_unit(part, m)))
        value = math.softcap(whole, part.pools.softcap)
    store(part.buffers.scores, value, m, token)


def score_unit(part: Part, m: Expr | int) -> Expr:
    """The unit of a score of vector m, in powers of two."""
    log2_e = tir.float32(math.LOG2_E)
    return log2_e if part.pools.softcap else bind(_product_unit(part, m) * log2_e)


def _product_unit(part: Part, m: Expr | int) -> Expr:
    """The unit of a dot product of vector m and a key."""
    scale, factor = tir.float32(part.pools.scale), part.queries.operands.factor
    return scale if factor is None else bind(factor[m] * scale)
