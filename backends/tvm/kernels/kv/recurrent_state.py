"""States of a recurrence along the tokens: in the first tiles of a block, and in memory of a thread
while rows change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import LANES, Expr, load, splat, store
from optc.backends.tvm.kernels.dsl.vectors import load_part, store_part


@dataclass(frozen=True)
class Columns:
    """Columns of the state [Dk,Dv] of one head.

    Attributes:
        pools: Of K, whose tiles hold the first half of the rows, and V, whose hold the other.
        per_tile: Rows of the state in each of these tiles.
        head: Whose state.
        width: Dv.
        start: The first column.
        counts: Columns of each vector.
        state: Dk rows of these vectors.
    """

    pools: tuple[Expr, Expr]
    per_tile: int
    head: Expr
    width: int
    start: Expr | int
    counts: tuple[int, ...]
    state: Expr

    @property
    def rows(self) -> int:
        """Dk."""
        return int(self.state.shape[0])

    def at(self, row: Expr, j: int) -> Expr:
        """Vector ``j`` of a row."""
        return load(self.state, row, j * LANES)

    def set(self, row: Expr, j: int, value: Expr) -> None:
        """Change vector ``j`` of a row."""
        store(self.state, value, row, j * LANES)

    def clear(self) -> None:
        """Begin with zeros."""
        with tir.serial(0, self.rows) as row:
            for j in range(len(self.counts)):
                self.set(row, j, splat(0.0))

    def read(self, tile: Expr) -> None:
        """Begin with the state in the tiles from one on."""

        def read(row: Expr, j: int, pool: Expr, place: tuple[Expr, Expr]) -> None:
            behind, start = place
            self.set(row, j, load_part(pool, self.counts[j], tile + behind, self.head, start))

        self._each(read)

    def write(self, tile: Expr) -> None:
        """Keep the state in the tiles from one on."""

        def write(row: Expr, j: int, pool: Expr, place: tuple[Expr, Expr]) -> None:
            behind, start = place
            store_part(pool, self.at(row, j), self.counts[j], tile + behind, self.head, start)

        self._each(write)

    def _each(self, body: Callable[[Expr, int, Expr, tuple[Expr, Expr]], None]) -> None:
        """``body(row, j, pool, (tile, start))`` for each vector; so many tiles behind the first one
        it lies there."""
        half = self.rows // 2
        for first, pool in zip((0, half), self.pools, strict=True):
            with tir.serial(0, half // self.per_tile) as tile, tir.serial(0, self.per_tile) as row:
                place = first + tile * self.per_tile + row
                for j in range(len(self.counts)):
                    start = row * self.width + self.start + j * LANES
                    body(place, j, pool, (tile, start))
