"""The scores of a partition: products of queries and keys, scaled, in powers of two."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels import math
from optc.backends.tvm.kernels.attention_state import Part, new_sums
from optc.backends.tvm.kernels.pools import TILE
from optc.backends.tvm.kernels.script import Expr, bind, splat, store


def score(part: Part, group: Expr, first: Expr | int, count: int) -> None:
    """Scores of ``count`` vectors from ``first`` on for one group of tiles, in powers of two."""
    pools, numbers = part.pools, part.pools.numbers
    operands, tiles = part.queries.operands, part.queries.blocking.tiles
    places = [bind(part.place.tiles[group * tiles + u]) for u in range(tiles)]
    sums = new_sums(numbers, count, tiles)
    with tir.serial(0, pools.k_words) as word:
        if part.queries.fetch:
            for place in places:
                pools.fetch_value(place, part.head, word, pools.k_words)
        keys = [numbers.words(pools.k, (place, part.head), word * TILE, TILE) for place in places]
        for j in range(count):
            for plane in range(numbers.planes):
                operand = numbers.operand(operands, first + j, plane, word)
                for u, key in enumerate(keys):
                    numbers.dot(sums[j][u][plane], key, operand)
    scales: list[Expr] = []
    if numbers.scaled:
        dim = pools.shape.key_dim
        scales = [pools.scales(pools.k, place, part.head, dim) for place in places]
    for j in range(count):
        unit = _score_unit(part, first + j)
        for u in range(tiles):
            value = numbers.value([s.get() for s in sums[j][u]], operands, first + j)
            value = value * scales[u] * unit if scales else value * unit
            if pools.softcap:
                value = math.softcap(bind(value), pools.softcap) * splat(math.LOG2_E)
            store(part.buffers.scores, value, first + j, (group * tiles + u) * TILE)


def _score_unit(part: Part, m: Expr | int) -> Expr:
    """What a dot product of vector m and a key is to be multiplied by."""
    pools, factor = part.pools, part.queries.operands.factor
    unit = pools.scale if pools.softcap else pools.scale * math.LOG2_E
    return splat(unit) if factor is None else bind(splat(factor[m] * tir.float32(unit)))
