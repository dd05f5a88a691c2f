"""Turns packed integer weights into vectors of u8, four input channels of a column in each lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.places import (
    READ_STRANDS,
    Place,
    fetch_ahead,
    fetch_lines,
    in_strands,
)
from optc.backends.tvm.weights.packing import PLANES

#: ``use(k, vectors)``: u8 vectors of four input channels from k on, one for each ``lanes`` columns.
Use = Callable[[Any, list[Any]], None]


class Weights(Protocol):
    """The weights of a matmul, as its tiles read them."""

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """Emit the loop over the input channels of one group or panel, four of them at a time.

        Args:
            place: Of the tile.
            group: Index of the group; 0 where the sums run over all of K, or the place's panel.
            column: First column of the vectors within the block.
            count: Vectors.
            use: Called with the first channel and the vectors.
        """
        ...


@dataclass(frozen=True)
class Unit:
    """Rows of packed weights that hold the same input channels, and how many these are."""

    rows: int
    channels: int


#: By bits. A row of nibbles has 8 channels. Two of them, then one with the two high bits of their
#: 16 channels, are 6 bits.
UNITS = {
    bits: Unit(sum(planes) // min(planes), 32 // min(planes)) for bits, planes in PLANES.items()
}


@dataclass(frozen=True)
class PackedValues:
    """Stored values, unsigned.

    Attributes:
        w: u8 [B, Kp * bits / 32, 64, 4].
        bits: 8, 6, 5, 4, 3 or 2.
        isa: What the kernel is compiled for.
        fetch: Whether tiles fetch the next block's weights.
    """

    w: Any
    bits: int
    isa: Isa
    fetch: bool = True

    @property
    def units(self) -> int:
        """Units of one block."""
        return int(self.w.shape[1]) // UNITS[self.bits].rows

    @property
    def channels(self) -> int:
        """Kp: input channels."""
        return self.units * UNITS[self.bits].channels

    def unit(self, place: Place, unit: Any, column: Any, count: int) -> Iterator[list[Any]]:
        """``count`` vectors of values u8, for four input channels of a unit after the other."""
        low, *high = PLANES[self.bits]
        lanes, first = self.isa.lanes, unit * UNITS[self.bits].rows
        parts = low // high[0] if high else 1
        tops = self._row(place, first + parts, column, count) if high else []
        for part in range(parts):
            raw = self._row(place, first + part, column, count)
            for at in range(8 // low):
                vectors = [field(vector, at, low, 0, lanes) for vector in raw]
                if high:
                    four = part * (8 // low) + at
                    above = [field(top, four, high[0], low, lanes) for top in tops]
                    vectors = [one | other for one, other in zip(vectors, above, strict=True)]
                yield [tir.bind(vector) for vector in vectors]

    def _row(self, place: Place, row: Any, column: Any, count: int) -> list[Any]:
        """Vectors of a row of packed weights."""
        lanes = self.isa.lanes
        spots = ([place.block, row, column + c * lanes, 0] for c in range(count))
        return [tir.bind(self.w.vload(spot, f"uint8x{4 * lanes}")) for spot in spots]

    def strands(self, place: Place, width: int, pieces: int) -> int:
        """From how many parts of K, of whole ``pieces``, a tile of ``width`` columns reads in turn;
        1 is in order, and it fetches.

        Tiles of parts of the columns come back for the others, and have to fetch.
        """
        alone = place.pace is None and place.panel is None and width == place.width
        return math.gcd(READ_STRANDS[self.bits], pieces) if alone and self.isa.lanes == 8 else 1

    def fetch_unit(self, place: Place, unit: Any, column: Any, width: int) -> None:
        """Fetch next weights, if tiles do, in the step of a unit; ``width`` columns of the tile."""
        for row in range(UNITS[self.bits].rows):
            self.fetch_row(place, unit, row, column, width)

    def fetch_row(self, place: Place, unit: Any, row: int, column: Any, width: int) -> None:
        """Fetch one of the unit's rows, as `fetch_unit` does; none that it does not have."""
        rows = UNITS[self.bits].rows
        if self.fetch and row < rows:
            fetch_ahead(self.w, place, unit * rows + row, column, width)


@dataclass(frozen=True)
class PackedWeights:
    """Stored values as they are.

    Attributes:
        values: The values.
        group_size: Input channels of a group; 0 is all of K.
        fours: At least so many times four channels are a step of the loop; 1 or 2.
    """

    values: PackedValues
    group_size: int
    fours: int = 1

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """Unit by unit, or by two of them."""
        values = self.values
        units = max(1, self.fours * 4 // UNITS[values.bits].channels)
        depth = UNITS[values.bits].channels * units
        total = values.units // units
        width, strands = count * values.isa.lanes, 1
        if self.group_size:
            steps = self.group_size // depth
            start = group * steps
            number = steps if total % steps == 0 else tir.min(steps, total - start)
        else:
            start, number = place.extent(total, depth)
            strands = values.strands(place, width, total)
        with in_strands(start, number, strands) as index:
            for unit in range(units):
                at = index if units == 1 else index * units + unit
                first = index * depth if units == 1 else index * depth + unit * (depth // units)
                if strands == 1:
                    values.fetch_unit(place, at, column, width)
                for four, vectors in enumerate(values.unit(place, at, column, count)):
                    use(first + four * 4, vectors)


@dataclass(frozen=True)
class GroupScales:
    """Integer scales of groups, and what is added to their products for int8 + 128.

    Attributes:
        wg: u8 [B, G, 2, 64].
        isa: What the kernel is compiled for.
        ahead: Groups by which they are fetched ahead; 0 fetches nothing.
    """

    wg: Any
    isa: Isa
    ahead: int

    def fetch(self, place: Place, group: Any) -> None:
        """Fetch those of a later group."""
        if self.ahead:
            fetch_lines(self.wg, [place.block, group + self.ahead, 0], 2, apart=1)

    def scale(self, block: Any, group: Any, column: Any) -> Any:
        """The scale of each lane's column in both of its words, int16."""
        return self._spread(block, group, 0, column, 0x80008000, 0x00040004, "int16")

    def offset(self, block: Any, group: Any, column: Any) -> Any:
        """The addend of four products, in all four bytes of a lane, u8."""
        return self._spread(block, group, 1, column, 0, 0x04040404, "uint8")

    def words(self, block: Any, group: Any, column: Any) -> tuple[Any, Any]:
        """The scale of each lane's column, and the addend of a product for int8, int32."""
        lanes = self.isa.lanes
        scale, offset = (
            tir.cast(self._wide(block, group, part, column), f"int32x{lanes}") for part in (0, 1)
        )
        return tir.bind(scale), tir.bind(offset - tir.broadcast(tir.int32(128), lanes))

    def signed_offset(self, block: Any, group: Any, column: Any) -> Any:
        """The addend of a product for int8, int16 in the low word of a lane; 0 in the other."""
        lanes = self.isa.lanes
        words = tir.reinterpret(self._wide(block, group, 1, column), dtype=f"int16x{2 * lanes}")
        excess = tir.reinterpret(tir.broadcast(tir.int32(128), lanes), dtype=f"int16x{2 * lanes}")
        return tir.bind(words - excess)

    def _wide(self, block: Any, group: Any, part: int, column: Any) -> Any:
        lanes = self.isa.lanes
        load = self.wg.vload([block, group, part, column], f"uint8x{lanes}")
        return tir.cast(load, f"uint32x{lanes}")

    def _spread(
        self, block: Any, group: Any, part: int, column: Any, first: int, step: int, dtype: str
    ) -> Any:
        """Each lane's byte where a mask has the byte's place among the 16 that a shuffle sees; the
        mask of the first lane, and by how much the next one's is greater. 0x80 gives a zero."""
        lanes = self.isa.lanes
        if self.isa.arm:  # a product by ones puts a byte in several places
            ones = tir.broadcast(tir.uint32(0x10001 if dtype == "int16" else 0x1010101), lanes)
            words = self._wide(block, group, part, column) * ones
            return tir.bind(
                tir.reinterpret(words, dtype=f"{dtype}x{8 if dtype == 'int16' else 16}")
            )
        mask = tir.ramp(tir.uint32(first), tir.uint32(step), lanes)
        kind = f"int8x{4 * lanes}"
        name = "llvm.x86.avx512.pshuf.b.512" if lanes == 16 else "llvm.x86.avx2.pshuf.b"
        operands = (self._wide(block, group, part, column), mask)
        spread = tir.call_llvm_pure_intrin(
            kind, name, *(tir.reinterpret(value, dtype=kind) for value in operands)
        )
        count = 2 * lanes if dtype == "int16" else 4 * lanes
        return tir.bind(tir.reinterpret(spread, dtype=f"{dtype}x{count}"))


def field(packed: Any, index: int, bits: int, to: int, lanes: int) -> Any:
    """Of u8 lanes, fields of so many bits each, one of them, moved to bit ``to``; all others 0.

    Shifted as words, then masked.
    """
    if bits == 8:
        return packed
    count, right = 2 * lanes, index * bits - to
    words = tir.reinterpret(packed, dtype=f"uint16x{count}")
    if right:
        shift = tir.shift_right if right > 0 else tir.shift_left
        words = shift(words, tir.broadcast(tir.uint16(abs(right)), count))
    mask = tir.broadcast(tir.uint16(((1 << bits) - 1 << to) * 0x0101), count)
    return tir.reinterpret(tir.bitwise_and(words, mask), dtype=f"uint8x{4 * lanes}")
