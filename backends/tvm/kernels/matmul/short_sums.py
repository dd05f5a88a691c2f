"""Matmul of weights of 2 to 6 bits without VNNI: products summed as int16 before int32.

``vpmaddubsw`` multiplies bytes and adds pairs. Widening each of its results costs as much again, so
values of few bits stay as they are stored, unsigned, and the sums of a stretch of input channels
are within an int16: 4 bits of 32 channels within 8 * 2 * 15 * 127 = 30480, 6 bits of 8 channels
within 2 * 2 * 63 * 127 = 32004, 5 bits of 16 channels within 31496. One ``vpmaddwd`` then widens
them and multiplies by the group's integer scale at once. Integer sums are exact, whatever their
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.dot import add_words, multiply_bytes, repeated
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH
from optc.backends.tvm.kernels.matmul.places import Place, in_strands
from optc.backends.tvm.kernels.matmul.tiles import Registers
from optc.backends.tvm.kernels.matmul.weights import UNITS, GroupScales, PackedValues

#: Groups of four input channels whose products an int16 can hold, by bits.
FOURS = {6: 2, 5: 4, 4: 8, 3: 8, 2: 8}


def sums_are_short(bits: int, isa: Isa) -> bool:
    """True if a matmul by weights of ``bits`` is of this kind on ``isa``."""
    return bits in FOURS and not isa.dots


@dataclass(frozen=True)
class _Tile:
    """Its int32 sums, rows of activations, place, first column within the block, and from how many
    parts of K it reads in turn."""

    sums: Registers
    rows: Sequence[Any]
    place: Place
    column: Any
    strands: int = 1


@dataclass(frozen=True)
class ShortSums:
    """Products of unsigned values, and of what two-level weights add to them.

    Attributes:
        values: The stored values.
        group_size: Input channels of a group, a multiple of 32; 0 is all of K.
        isa: What the kernel is compiled for.
        xq: int8 [T, Kp]: activations.
        xsum: int32 [T, Kp/32]: their sums.
        scales: Integer scales and offsets of the groups; None are products of the values alone,
            of one group after the other.
    """

    values: PackedValues
    group_size: int
    isa: Isa
    xq: Any
    xsum: Any
    scales: GroupScales | None = None

    @property
    def offset(self) -> int:
        """Two-level weights are int8 + 128; else values are as they are stored."""
        return 128 if self.scales else 0

    def add(
        self, sums: Registers, rows: Sequence[Any], place: Place, group: Any, column: Any
    ) -> None:
        """Add the products of one group, or of the place's panel where there are none; of all of K
        where groups have integer scales."""
        tile, lanes, scales = _Tile(sums, rows, place, column), self.isa.lanes, self.scales
        if scales is None:
            ones = tir.broadcast(tir.int16(1), 2 * lanes)
            self._group(tile, group, [ones] * sums.vectors, [])
            return
        groups = int(scales.wg.shape[1])
        strands = self.values.strands(place, sums.vectors * lanes, groups)
        tile = replace(tile, strands=strands)
        with in_strands(0, groups, strands) as index:
            columns = [column + c * lanes for c in range(sums.vectors)]
            scales.fetch(place, index)
            factors = [scales.scale(place.block, index, at) for at in columns]
            offsets = [scales.signed_offset(place.block, index, at) for at in columns]
            self._group(tile, index, factors, offsets)

    def _group(self, tile: _Tile, group: Any, factors: list[Any], offsets: list[Any]) -> None:
        """Add ``factor * values + offset`` times the activations, of a group's channels."""
        sums, lanes, total = tile.sums, self.isa.lanes, self.values.channels // SUM_WIDTH
        first, number = tile.place.extent(total, SUM_WIDTH)
        if self.group_size:
            stretches = self.group_size // SUM_WIDTH
            first, number = group * stretches, stretches
            if total % stretches:
                number = tir.min(stretches, total - first)
        with tir.serial(number) as following:
            stretch = tir.bind(first + following)
            self._stretch(tile, stretch, factors)
            for r, row in enumerate(tile.rows if offsets else ()):
                of_row = tir.broadcast(self.xsum[row, stretch], lanes)
                words = tir.bind(tir.reinterpret(of_row, dtype=f"int16x{2 * lanes}"))
                for c, offset in enumerate(offsets):
                    sums[r, c] = add_words(sums[r, c], offset, words, lanes)

    def _stretch(self, tile: _Tile, stretch: Any, factors: list[Any]) -> None:
        """Add ``factor`` times the products of 32 input channels."""
        lanes, values, sums, place = self.isa.lanes, self.values, tile.sums, tile.place
        rows, vectors = range(len(sums.rows)), range(sums.vectors)
        words = Registers(len(rows), len(vectors), 2 * lanes, "int16")
        # One row shares no activations among its vectors, which then take no registers meanwhile.
        together = [[c] for c in vectors] if len(rows) == 1 else [list(vectors)]
        depth, most = UNITS[values.bits].channels, FOURS[values.bits]
        every = 2 if place.fetches_rarely and UNITS[values.bits].rows == 1 else 1
        for index in range(SUM_WIDTH // depth):
            unit = stretch * (SUM_WIDTH // depth) + index
            if tile.strands == 1 and index % every == 0:
                values.fetch_unit(place, unit, tile.column, len(vectors) * lanes)
            for cs in together:
                loaded = values.unit(place, unit, tile.column + cs[0] * lanes, len(cs))
                for four, loads in enumerate(loaded, index * depth // 4):
                    k = stretch * SUM_WIDTH + four * 4
                    for r in rows:
                        activations = repeated(self.xq, tile.rows[r], k, lanes)
                        for c, load in zip(cs, loads, strict=True):
                            products = multiply_bytes(load, activations, lanes)
                            words[r, c] = words[r, c] + products if four % most else products
                    for r, c in product(rows, cs if four % most == most - 1 else ()):
                        sums[r, c] = add_words(sums[r, c], words[r, c], factors[c], lanes)
