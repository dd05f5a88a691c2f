"""Products of weights and activations in the tiles of the matmuls that multiply integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import Activations, AsStored
from optc.backends.tvm.kernels.matmul.dot import dot_ops
from optc.backends.tvm.kernels.matmul.matrix_dots import MatrixDots
from optc.backends.tvm.kernels.matmul.places import Place
from optc.backends.tvm.kernels.matmul.tiles import Registers
from optc.backends.tvm.kernels.matmul.weights import Weights


class Products(Protocol):
    """The products of a tile."""

    @property
    def offset(self) -> int:
        """``add`` multiplies (stored weight - offset)."""
        ...

    def add(
        self, sums: Registers, rows: Sequence[Any], place: Place, group: Any, column: Any
    ) -> None:
        """Add the products of one group, or of the place's panel where there are no groups.

        Args:
            sums: int32, of the tile.
            rows: Index of each of the tile's rows in the activations.
            place: Of the tile.
            group: Index of the group; 0 where the sums run over all of K, or the place's panel.
            column: First column of the tile within the block.
        """
        ...


@dataclass(frozen=True)
class Dots:
    """Four input channels at a time, added to the sums.

    Attributes:
        weights: The weights.
        isa: What the kernel is compiled for.
        activations: What they are multiplied by.
        bits: Of the weights' unsigned values.
    """

    weights: Weights
    isa: Isa
    activations: Activations
    bits: int = 8

    @property
    def offset(self) -> int:
        """That of the instruction set's dot product."""
        return dot_ops(self.isa, self.bits).offset

    def add(
        self, sums: Registers, rows: Sequence[Any], place: Place, group: Any, column: Any
    ) -> None:
        """Multiply four activations of every row by the weights of all columns."""
        if self.isa.i8mm and len(rows) > 1 and isinstance(self.activations, AsStored):
            tile = MatrixDots(sums, rows, self.activations)
            self.weights.each_four(place, group, column, sums.vectors, tile.use)
            tile.finish()
            return
        ops = dot_ops(self.isa, self.bits)

        def use(k: Any, vectors: list[Any]) -> None:
            prepared = [ops.prepare(vector) for vector in vectors]
            for r, row in enumerate(rows):
                activations = self.activations.four(row, k)
                for c, weight in enumerate(prepared):
                    sums[r, c] = ops.dot(sums[r, c], weight, activations)

        self.weights.each_four(place, group, column, sums.vectors, use)
