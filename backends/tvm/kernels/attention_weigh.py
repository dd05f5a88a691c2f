"""The weighted values of a partition."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention_blocking import column_chunks
from optc.backends.tvm.kernels.attention_softmax import Running, merge_total
from optc.backends.tvm.kernels.attention_state import Part, fetching, new_sums
from optc.backends.tvm.kernels.pools import TILE
from optc.backends.tvm.kernels.script import LANES, Expr, Register, bind


def weigh(
    part: Part, running: Running, seen: tuple[Expr, Expr], first: Expr | int, count: int
) -> None:
    """Weighted sums of values for ``count`` vectors from ``first`` on, merged into the totals."""
    pools, numbers, weights = part.pools, part.pools.numbers, part.buffers.weights
    for columns in column_chunks(pools.shape.value_dim, part.queries.blocking.columns):
        sums = new_sums(numbers, weights, (first, count), numbers.weight_planes, len(columns))
        fetch = columns[0][0] == 0
        tiles = (seen[0] // TILE, (seen[1] + (TILE - 1)) // TILE)
        if numbers.integral:
            _weigh_steps(_Weighed(part, columns, first, sums), tiles, fetch=fetch)
        else:
            with tir.serial(*tiles) as i:
                low = bind(tir.max(seen[0] - i * TILE, 0))
                end = bind(tir.min(seen[1] - i * TILE, TILE))
                weighed = _Weighed(part, columns, first, sums)
                with tir.If(tir.And(low == 0, end == TILE)):
                    with tir.Then():
                        weighed.all(i, fetch=fetch)
                    with tir.Else():
                        weighed.seen(i, low, end)
        for j in range(count):
            old = bind(part.buffers.factors[first + j, 0])
            new = bind(part.buffers.factors[first + j, 1])
            for total, (d, lanes) in zip(sums[j], columns, strict=True):
                value = numbers.value([plane.get() for plane in total])
                if lanes < LANES:
                    value = bind(tir.vectorlow(f"float32x{lanes}", value))
                merge_total(running, value, first + j, d, old, new)


def _weigh_steps(weighed: _Weighed, tiles: tuple[Expr, Expr], *, fetch: bool) -> None:
    """All tokens of tiles whose bits are numbers, in one loop: a loop over the words of a tile is
    short, and the compiler would unroll it and spill most of the sums."""
    words = weighed.words
    with tir.serial(tiles[0] * words, tiles[1] * words) as step:
        weighed.word(bind(step // words), bind(step % words), fetch=fetch)


@dataclass(frozen=True)
class _Weighed:
    """Adds weighted values of a partition's tiles, some columns of them, to ``sums``."""

    part: Part
    columns: list[tuple[int, int]]
    first: Expr | int
    sums: list[list[list[Register]]]

    @property
    def words(self) -> int:
        """Rows of words of a tile."""
        return TILE // self.part.pools.shape.type.pack

    def all(self, i: Expr, *, fetch: bool) -> None:
        """All tokens of tile ``i``."""
        with tir.serial(0, self.words) as word:
            self.word(i, word, fetch=fetch)

    def seen(self, i: Expr, low: Expr, end: Expr) -> None:
        """Tokens ``low`` to ``end`` of tile ``i``."""
        pack = self.part.pools.shape.type.pack
        with tir.serial(low // pack, (end + (pack - 1)) // pack) as word:
            self._add(i, word, self.part.pools.numbers.kept(word, low, end))

    def word(self, i: Expr, word: Expr, *, fetch: bool) -> None:
        """All tokens of one row of words; ``fetch`` keys of the partition that follows."""
        part = self.part

        def fetch_key() -> None:
            following = bind(part.following.tiles[i])
            part.pools.fetch_key(following, part.following.head, word, self.words)

        if fetch:
            fetching(part.queries, fetch_key)
        self._add(i, word, None)

    def _add(self, i: Expr, word: Expr, kept: Expr | None) -> None:
        part, numbers = self.part, self.part.pools.numbers
        at = (bind(part.place.tiles[i]), part.head)
        start = word * part.pools.shape.value_dim
        values = [
            numbers.words(part.pools.v, at, start + d, lanes, kept) for d, lanes in self.columns
        ]
        for j, totals in enumerate(self.sums):
            for plane in range(numbers.weight_planes):
                index = i * self.words + word
                operand = numbers.operand(part.buffers.weights, self.first + j, plane, index)
                for total, value in zip(totals, values, strict=True):
                    numbers.dot(total[plane], value, operand)
