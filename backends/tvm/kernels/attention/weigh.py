"""The weighted values of a partition."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.blocking import column_chunks
from optc.backends.tvm.kernels.attention.fetch import fetch, fetch_scales
from optc.backends.tvm.kernels.attention.operands import Words
from optc.backends.tvm.kernels.attention.softmax import Running, merge_total
from optc.backends.tvm.kernels.attention.state import At, Part, new_sums
from optc.backends.tvm.kernels.dsl.script import LANES, Expr, Register, bind, wide
from optc.backends.tvm.kernels.kv.pools import TILE


def weigh(
    part: Part, running: Running, seen: tuple[Expr, Expr], first: Expr | int, count: int
) -> None:
    """Weighted sums of values for ``count`` vectors from ``first`` on, merged into the totals."""
    pools, numbers, weights = part.pools, part.pools.numbers, part.buffers.weights
    for columns in column_chunks(pools.shape.value_dim, part.queries.blocking.columns):
        sums = new_sums(numbers, weights, (first, count), numbers.weight_planes, len(columns))
        first_columns = columns[0][0] == 0
        tiles = (seen[0] // TILE, (seen[1] + (TILE - 1)) // TILE)
        with tir.serial(*tiles) as i:
            low = bind(tir.max(seen[0] - i * TILE, 0))
            end = bind(tir.min(seen[1] - i * TILE, TILE))
            weighed = _Weighed(part, columns, first, sums, i)
            if numbers.integral:
                weighed.words(low, end, fetching=first_columns)
            else:
                with tir.If(tir.And(low == 0, end == TILE)):
                    with tir.Then():
                        weighed.all(fetching=first_columns)
                    with tir.Else():
                        weighed.words(low, end, fetching=False)
        for j in range(count):
            old = bind(part.buffers.factors[first + j, 0])
            new = bind(part.buffers.factors[first + j, 1])
            for total, (d, lanes) in zip(sums[j], columns, strict=True):
                value = numbers.value([plane.get() for plane in total])
                if lanes < LANES:
                    value = bind(tir.vectorlow(f"float32x{lanes}", value))
                merge_total(running, value, first + j, d, old, new)


@dataclass(frozen=True)
class _Weighed:
    """Adds weighted values of a partition's tile ``i``, some columns of them, to ``sums``."""

    part: Part
    columns: list[tuple[int, int]]
    first: Expr | int
    sums: list[list[list[Register]]]
    i: Expr

    @property
    def most(self) -> int:
        """Rows of words of a tile."""
        return TILE // self.part.pools.shape.type.pack

    def all(self, *, fetching: bool) -> None:
        """All tokens of tile ``i``; ``fetching`` keys of the partition that follows."""
        at = self.part.place.at(self.i)
        with tir.serial(0, self.most) as word:
            if fetching:
                fetch(self.part, "weigh", self.i, word, self.most)
            self._add(at, word, None)

    def words(self, low: Expr, end: Expr, *, fetching: bool) -> None:
        """Tokens ``low`` to ``end``."""
        # The compiler does not know how many steps the loop has; else it would unroll it, and
        # spill most of the sums.
        at, pack = self.part.place.at(self.i), self.part.pools.shape.type.pack
        if fetching:
            fetch_scales(self.part, self.i, keys=True)
        with tir.serial(low // pack, (end + (pack - 1)) // pack) as word:
            if fetching:
                fetch(self.part, "weigh", self.i, word, self.most)
            self._add(at, word, self.part.pools.numbers.kept(word, low, end))

    def _add(self, at: At, word: Expr, kept: Expr | None) -> None:
        part, numbers = self.part, self.part.pools.numbers
        width = part.pools.shape.value_dim
        index = wide(self.i) * self.most + wide(word)
        values = [
            numbers.values(part.pools.v, Words(at, word, d, width), lanes, kept)
            for d, lanes in self.columns
        ]
        for j, totals in enumerate(self.sums):
            for plane in range(numbers.weight_planes):
                operand = numbers.operand(part.buffers.weights, self.first + j, plane, index)
                for total, value in zip(totals, values, strict=True):
                    numbers.dot(total[plane], value, operand)
