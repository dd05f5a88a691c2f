"""The scores of a partition by tiles of AMX: words of a KV tile's keys are a tile as they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.amx.panel import Factors, Panel, for_vectors
from optc.backends.tvm.kernels.attention.fetch import fetch, fetch_scales
from optc.backends.tvm.kernels.attention.int4 import Int4
from optc.backends.tvm.kernels.attention.operands import Words
from optc.backends.tvm.kernels.attention.score import put_score
from optc.backends.tvm.kernels.attention.state import Part
from optc.backends.tvm.kernels.dsl.script import Expr, bind, load, scratch, splat, store, wide
from optc.backends.tvm.kernels.kv.pools import TILE
from optc.backends.tvm.kernels.matmul.amx import instructions as amx

#: Bytes between rows of words: of 16 tokens.
_STRIDE = 4 * TILE
#: Parts in which a tile of values is fetched.
_FETCHES = 4


def score_by_tiles(part: Part, groups: tuple[Expr, Expr], config: Expr) -> None:
    """Scores of all vectors for the groups of tiles ``groups``, as of `score`; ``config`` is what
    `optc.backends.tvm.kernels.matmul.amx.instructions.start_config` wrote."""
    pools, numbers, size = part.pools, part.pools.numbers, part.queries.blocking
    kind = numbers.by_tiles
    assert kind is not None
    width = pools.shape.key_dim * kind.bytes
    rows = min(amx.ROWS, size.vectors)
    panel = Panel(kind, numbers.query_planes, rows, amx.even_depth(width), TILE)
    panel.configure(config)
    sums = panel.sums(numbers.totals)
    unpacked = isinstance(numbers, Int4)
    room = scratch((size.tiles, pools.k_words, _STRIDE), "uint8") if unpacked else None
    with tir.serial(*groups) as group:
        keys = _Keys(part, group, room)
        keys.prepare()
        for_vectors(
            rows,
            part.queries.count,
            lambda m, count: _score(panel, keys, sums, m, count),
        )


def _score(panel: Panel, keys: _Keys, sums: Expr, m: Expr, count: Expr | int) -> None:
    """Scores of up to 16 vectors for a group of tiles."""
    part = keys.part
    numbers, tiles = part.pools.numbers, part.queries.blocking.tiles
    depth = panel.depth // panel.type.bytes
    for first in range(0, tiles, panel.across):
        panel.start(panel.across)
        with tir.serial(0, part.pools.shape.key_dim // depth) as step:
            word = bind(step * (panel.depth // 4))
            factors = Factors(part.queries.operands, m)
            panel.add(factors, step * depth, keys.words(first, word), _STRIDE, panel.across)
        panel.store(sums, panel.across)
        with tir.serial(0, count) as row:
            start = part.queries.operands.start
            for c in range(panel.across):
                totals = [bind(load(sums, p, row, c * TILE)) for p in range(panel.planes)]
                if start is not None:
                    totals[-1] = bind(totals[-1] + splat(start[m + row]))
                u = first + c
                scale = keys.scale(u) if numbers.scaled else None
                token = (keys.group * tiles + u) * TILE
                put_score(part, numbers.value(totals), scale, bind(m + row), token)


@dataclass(frozen=True)
class _Keys:
    """Keys of a group of tiles: where they lie, or in ``room``."""

    part: Part
    group: Expr
    room: Expr

    def _place(self, u: int) -> tuple[Expr, Expr]:
        return self.part.place.at(self.group * self.part.queries.blocking.tiles + u)

    def prepare(self) -> None:
        """Fetch values, and write codes of fewer bits into ``room`` as bytes."""
        part, tiles = self.part, self.part.queries.blocking.tiles
        words = part.pools.k_words
        for u in range(tiles):
            fetch_scales(part, self.group * tiles + u, keys=False)
            with tir.serial(0, _FETCHES) as turn:
                fetch(part, "score", self.group * tiles + u, turn, _FETCHES)
        if self.room is None:
            return
        for u in range(tiles):
            place = self._place(u)
            with tir.serial(0, words) as word:
                (codes,) = part.pools.numbers.keys(part.pools.k, Words(place, word, 0, TILE))
                store(self.room, codes, u, word, 0)

    def words(self, first: int, word: Expr) -> Callable[[int], Expr]:
        """Gives the addresses of the words, from row ``word`` on, of tiles from ``first`` on."""
        pools = self.part.pools

        def at(column: int) -> Expr:
            if self.room is not None:
                return tir.address_of(self.room[first + column, word, 0])
            element = wide(word) * (TILE * pools.shape.type.pack)
            return tir.address_of(pools.k[(*self._place(first + column), element)])

        return at

    def scale(self, u: int) -> Expr:
        """The scales of its tokens."""
        pools = self.part.pools
        return pools.scales(pools.k, self._place(u), pools.shape.key_dim)
