"""Products of weights of 2 to 6 bits whose groups have integer scales, where one instruction adds
four of them: the stored values of a group are multiplied as they are, and its sums by the scale.

That takes one multiplication for a group's sum instead of one for every four weights. x86 does
without: its product of int32 takes as long as three others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import AsStored, QuantizedRows, group_sum
from optc.backends.tvm.kernels.matmul.places import Place
from optc.backends.tvm.kernels.matmul.products import Dots
from optc.backends.tvm.kernels.matmul.tiles import Registers
from optc.backends.tvm.kernels.matmul.weights import GroupScales, PackedValues, PackedWeights


@dataclass(frozen=True)
class ScaledDots:
    """Group by group.

    Attributes:
        values: The stored values.
        group_size: Input channels of a group, a multiple of 32.
        scales: Of the groups.
        isa: What the kernel is compiled for.
        x: The activations.
    """

    values: PackedValues
    group_size: int
    scales: GroupScales
    isa: Isa
    x: QuantizedRows

    @property
    def offset(self) -> int:
        """The weights that these stand for are int8 + 128."""
        return 128

    def add(
        self, sums: Registers, rows: Sequence[Any], place: Place, group: Any, column: Any
    ) -> None:
        """Add the products of all of K, or of the place's panel."""
        lanes = self.isa.lanes
        weights = PackedWeights(self.values, self.group_size)
        stored = AsStored(self.x.q, lanes)
        dots = Dots(weights, self.isa, stored, self.values.bits)
        first, groups = place.extent(int(self.scales.wg.shape[1]), self.group_size)
        own = Registers(len(rows), sums.vectors, lanes, "int32")
        with tir.serial(groups) as following:
            index = tir.bind(first + following)
            self.scales.fetch(place, index)
            for cell in own.cells():
                own[cell] = tir.broadcast(tir.int32(0), lanes)
            dots.add(own, rows, place, index, column)
            of_rows = [group_sum(self.x.sums, row, index, self.group_size) for row in rows]
            for c in range(sums.vectors):
                at = column + c * lanes
                scale, offset = self.scales.words(place.block, index, at)
                for r, of_row in enumerate(of_rows):
                    added = own[r, c] * scale + offset * tir.broadcast(of_row, lanes)
                    sums[r, c] = sums[r, c] + added
