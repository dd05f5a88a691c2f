"""The weighted values of a partition by tiles of AMX.

A KV tile has rows of words of 16 tokens only. Where a product takes more tokens, the rows of
several KV tiles are copied side by side first; otherwise values are multiplied where they lie, but
those of a KV tile of which some tokens are not seen, which may be no numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.amx.panel import Factors, Panel, for_vectors
from optc.backends.tvm.kernels.attention.fetch import fetch, fetch_scales
from optc.backends.tvm.kernels.attention.operands import Words, widened
from optc.backends.tvm.kernels.attention.softmax import Running, merge_total
from optc.backends.tvm.kernels.attention.state import PARTITION, Part
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    bind,
    lanes_of,
    load,
    scratch,
    splat,
    store,
    wide,
)
from optc.backends.tvm.kernels.kv.pools import DIM_MULTIPLE, TILE
from optc.backends.tvm.kernels.matmul.amx import instructions as amx

#: Parts in which a tile of keys is fetched.
_FETCHES = 4


def weigh_by_tiles(part: Part, running: Running, seen: tuple[Expr, Expr], config: Expr) -> None:
    """Weighted sums of values for all vectors, merged into the totals, as of `weigh`."""
    pools, numbers = part.pools, part.pools.numbers
    kind = numbers.by_tiles
    assert kind is not None
    width = pools.shape.value_dim
    columns = LANES if width % LANES == 0 else DIM_MULTIPLE
    rows = min(amx.ROWS, part.queries.blocking.vectors)
    panel = Panel(kind, numbers.weight_planes, rows, kind.tokens * kind.bytes, columns)
    values: _Copied | _InPlace
    if kind.tokens > TILE:
        values = _Copied(part, panel, scratch((PARTITION * width,), "uint8"))
        values.copy()
    else:
        room = scratch((TILE // pools.shape.type.pack, panel.across * columns), "uint32")
        values = _InPlace(part, panel, room, seen)
    panel.configure(config)
    work = _Work(part, running, panel, values, panel.sums(numbers.totals))
    chunks, rest = divmod(width // columns, panel.across)
    with tir.serial(0, chunks) as chunk:
        work.columns(bind(chunk * panel.across * columns), panel.across)
    if rest:
        work.columns(tir.int32(chunks * panel.across * columns), rest)


@dataclass(frozen=True)
class _Work:
    """The parts that all columns share."""

    part: Part
    running: Running
    panel: Panel
    values: _Copied | _InPlace
    sums: Expr

    def columns(self, d: Expr, count: int) -> None:
        """All vectors' sums of ``count`` tiles of columns from dimension ``d`` on."""

        def vectors(m: Expr, number: Expr | int) -> None:
            self.panel.start(count)
            self.values.add(Factors(self.part.buffers.weights, m), d, count)
            self.panel.store(self.sums, count)
            with tir.serial(0, number) as row:
                self._merge(row, bind(m + row), d, count)

        for_vectors(self.panel.rows, self.part.queries.count, vectors)

    def _merge(self, row: Expr, m: Expr, d: Expr, count: int) -> None:
        """Take a vector's sums into its total."""
        buffers, numbers, lanes = self.part.buffers, self.part.pools.numbers, self.panel.columns
        old, new = bind(buffers.factors[m, 0]), bind(buffers.factors[m, 1])
        for column in range(count):
            planes = range(self.panel.planes)
            totals = [load(self.sums, p, row, column * lanes, lanes=lanes) for p in planes]
            totals = [bind(widened(total)) for total in totals]
            if buffers.weights.start is not None:
                totals[-1] = bind(totals[-1] + splat(buffers.weights.start[m]))
            value = _first(numbers.value(totals), lanes)
            merge_total(self.running, value, m, d + column * lanes, old, new)


@dataclass(frozen=True)
class _Copied:
    """Values of a partition side by side, four tokens a word; whatever lies there are numbers.

    Attributes:
        part: The partition.
        panel: The products.
        room: u8 [64 Dv 4]: words of four tokens of each dimension.
    """

    part: Part
    panel: Panel
    room: Expr

    def copy(self) -> None:
        """Write them, and fetch keys."""
        part, lanes = self.part, self.panel.columns
        pools, words, width = part.pools, TILE // 4, part.pools.shape.value_dim
        with tir.serial(*part.limits) as i:
            at = part.place.at(i)
            fetch_scales(part, i, keys=True)
            with tir.serial(0, words) as word:
                fetch(part, "weigh", i, word, words)
                for d in range(0, width, lanes):
                    (codes,) = pools.numbers.values(pools.v, Words(at, word, d, width), lanes)
                    place = wide(i) * words + wide(word)
                    bytes_ = _first(codes, 4 * lanes)
                    store(self.room, bytes_, place * (4 * width) + 4 * d)

    def add(self, weights: Factors, d: Expr, count: int) -> None:
        """Add products of all tokens."""
        panel, tiles = self.panel, self.panel.type.tokens // TILE
        (first, end), width = self.part.limits, self.part.pools.shape.value_dim
        with tir.serial(first // tiles, end // tiles) as group:
            words = wide(group) * (panel.type.tokens // 4)

            def at(column: int) -> Expr:
                place = words * width + wide(d + column * panel.columns)
                return tir.address_of(self.room[place * 4])

            panel.add(weights, group * panel.type.tokens, at, 4 * width, count)


@dataclass(frozen=True)
class _InPlace:
    """Values where they lie.

    Attributes:
        part: The partition.
        panel: The products.
        room: u32 [words of a tile, columns of all tiles], for values of which some are no numbers.
        seen: Range of tokens that at least one vector sees.
    """

    part: Part
    panel: Panel
    room: Expr
    seen: tuple[Expr, Expr]

    def add(self, weights: Factors, d: Expr, count: int) -> None:
        """Add products of all tokens."""
        part, (low, end) = self.part, self.seen
        with tir.serial(low // TILE, (end + (TILE - 1)) // TILE) as i:
            first = bind(tir.max(low - i * TILE, 0))
            last = bind(tir.min(end - i * TILE, TILE))
            with tir.If(d == 0), tir.Then(), tir.serial(0, _FETCHES) as turn:
                fetch(part, "weigh", i, turn, _FETCHES)
            with tir.If(tir.And(first == 0, last == TILE)):
                with tir.Then():
                    self._products(weights, i, self._at(i, d), part.pools.shape.value_dim, count)
                with tir.Else():
                    self._mask(i, d, (first, last), count)
                    self._products(weights, i, self._masked, int(self.room.shape[1]), count)

    def _products(
        self, weights: Factors, i: Expr, at: Callable[[int], Expr], width: int, count: int
    ) -> None:
        self.panel.add(weights, i * TILE, at, 4 * width, count)

    def _at(self, i: Expr, d: Expr) -> Callable[[int], Expr]:
        pools, place = self.part.pools, self.part.place.at(i)
        pack = pools.shape.type.pack
        return lambda c: tir.address_of(pools.v[(*place, wide(d + c * self.panel.columns) * pack)])

    def _masked(self, column: int) -> Expr:
        return tir.address_of(self.room[0, column * self.panel.columns])

    def _mask(self, i: Expr, d: Expr, seen: tuple[Expr, Expr], count: int) -> None:
        """Write the tokens ``seen`` of tile ``i``, and zeros for others."""
        pools, lanes = self.part.pools, self.panel.columns
        at, width = self.part.place.at(i), pools.shape.value_dim
        with tir.serial(0, TILE // pools.shape.type.pack) as word:
            kept = pools.numbers.kept(word, *seen)
            for c in range(count):
                words = Words(at, word, wide(d + c * lanes), width)
                (value,) = pools.numbers.values(pools.v, words, lanes, kept)
                store(self.room, _first(value, lanes), word, c * lanes)


def _first(vector: Expr, lanes: int) -> Expr:
    """Its first lanes."""
    if lanes_of(vector) == lanes:
        return vector
    dtype = str(vector.ty.dtype).split("x")[0]
    return bind(tir.vectorlow(f"{dtype}x{lanes}", bind(vector)))
