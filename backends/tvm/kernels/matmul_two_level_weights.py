"""Weights of 4 or 6 bits whose groups have integer scales, as the unsigned values of int8 weights:
unpacked in registers, or by a task before its tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul_places import PACE, Place, fetch_ahead, fetch_lines
from optc.backends.tvm.kernels.matmul_tiles import store
from optc.backends.tvm.kernels.matmul_weights import Use, high_pairs, nibbles


@dataclass(frozen=True)
class Unit:
    """Rows of packed weights that hold the same input channels, and how many these are."""

    rows: int
    channels: int


#: By bits. A row of nibbles has 8 channels; two of them, then one with the two high bits of their
#: 16 channels.
UNITS = {4: Unit(1, 8), 6: Unit(3, 16)}
#: Rows of packed weights by which scales of groups are fetched ahead.
SCALES_AHEAD = 32


@dataclass(frozen=True)
class InRegisters:
    """Values times their group's scale, moved to the unsigned values of int8 weights.

    Attributes:
        w: u8 [B, Kp * bits / 32, 64, 4].
        bits: 4 or 6.
        wg: u8 [B, G, 2, 64]: integer scales, and what is added to their products.
        group_size: Input channels of a group.
        isa: What the kernel is compiled for.
        fetch: Whether tiles fetch the next block's weights.
    """

    w: Any
    bits: int
    wg: Any
    group_size: int
    isa: Isa
    fetch: bool

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """A group's scales are spread to the lanes' bytes before its channels."""
        lanes, unit = self.isa.lanes, UNITS[self.bits]
        steps, total = self.group_size // unit.channels, int(self.w.shape[1]) // unit.rows
        first, groups = place.extent(int(self.wg.shape[1]), self.group_size)
        with tir.serial(groups) as following:
            index = tir.bind(first + following)
            if self.fetch:
                ahead = max(1, SCALES_AHEAD * unit.channels // unit.rows // self.group_size)
                fetch_lines(self.wg, [place.block, index + ahead, 0], 2, apart=1)
            spreads = [self._spread(place.block, index, column + c * lanes) for c in range(count)]
            number: Any = steps if total % steps == 0 else tir.min(steps, total - index * steps)
            with tir.serial(number) as step:
                number_of_unit = tir.bind(index * steps + step)
                values = self._values(place, number_of_unit, column, count)
                for four, vectors in enumerate(values):
                    pairs = zip(vectors, spreads, strict=True)
                    scaled = [tir.bind(self._scaled(vector, *by)) for vector, by in pairs]
                    use(number_of_unit * unit.channels + four * 4, scaled)

    def _values(self, place: Place, unit: Any, column: Any, count: int) -> Iterator[list[Any]]:
        """Vectors of values u8, for four input channels of a unit after the other."""
        lanes, rows = self.isa.lanes, UNITS[self.bits].rows
        if self.bits == 4:
            both = self._row(place, unit, column, count)
            for half in range(2):
                yield [nibbles(raw, half, lanes) for raw in both]
            return
        tops = self._row(place, unit * rows + 2, column, count)
        for part in range(2):
            lows = self._row(place, unit * rows + part, column, count)
            for half in range(2):
                yield [
                    nibbles(low, half, lanes) | high_pairs(top, part * 2 + half, lanes)
                    for low, top in zip(lows, tops, strict=True)
                ]

    def _row(self, place: Place, row: Any, column: Any, count: int) -> list[Any]:
        """Vectors of a row of packed weights."""
        lanes = self.isa.lanes
        if self.fetch:
            fetch_ahead(self.w, place, row, column, count * lanes)
        spots = ([place.block, row, column + c * lanes, 0] for c in range(count))
        return [tir.bind(self.w.vload(spot, f"uint8x{4 * lanes}")) for spot in spots]

    def _spread(self, block: Any, group: Any, column: Any) -> tuple[Any, Any]:
        """A group's scale in both words of each lane, and its offset in all four bytes."""
        lanes = self.isa.lanes
        # Bytes of a lane by their place among the 16 that a shuffle sees; 0x80 gives a zero.
        masks = [(0x80008000, 0x00040004), (0, 0x04040404)]
        spreads = []
        for part, (first, step) in enumerate(masks):
            wide = tir.cast(self.wg.vload([block, group, part, column], f"uint8x{lanes}"),
                            f"uint32x{lanes}")  # fmt: skip
            mask = tir.ramp(tir.uint32(first), tir.uint32(step), lanes)
            kind = f"int8x{4 * lanes}"
            name = "llvm.x86.avx512.pshuf.b.512" if lanes == 16 else "llvm.x86.avx2.pshuf.b"
            bytes_, places = (tir.reinterpret(v, dtype=kind) for v in (wide, mask))
            spreads.append(tir.bind(tir.call_llvm_pure_intrin(kind, name, bytes_, places)))
        return spreads[0], spreads[1]

    def _scaled(self, values: Any, scale: Any, offset: Any) -> Any:
        """u8: value * scale + offset; no product of a byte carries into the next one."""
        lanes = self.isa.lanes
        words = f"uint16x{2 * lanes}"
        product = tir.reinterpret(values, dtype=words) * tir.reinterpret(scale, dtype=words)
        unsigned = f"uint8x{4 * lanes}"
        return tir.reinterpret(product, dtype=unsigned) + tir.reinterpret(offset, dtype=unsigned)


@dataclass(frozen=True)
class Unpacked:
    """A task's channels, unpacked before its tiles.

    Attributes:
        buffer: u8 [Kp / 4, vectors, bytes of a vector], which hold the task's columns in order,
            from the first channel of the place's panel on.
        first: First channel of the task within its block.
        w: The packed weights, fetched ahead for the next task.
        bits: Of them.
        isa: What the kernel is compiled for.
        fetch: Whether tiles fetch them.
    """

    buffer: Any
    first: Any
    w: Any
    bits: int
    isa: Isa
    fetch: bool

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """In steps of a unit of packed weights, by which the next ones are fetched."""
        lanes, unit = self.isa.lanes, UNITS[self.bits]
        fours = unit.channels // 4
        first, number = place.extent(int(self.w.shape[1]) // unit.rows, unit.channels)
        with tir.serial(number) as step:
            index = tir.bind(first + step)
            for row in range(unit.rows if self.fetch else 0):
                fetch_ahead(self.w, place, index * unit.rows + row, column, count * lanes)
            for four in range(fours):
                vector = (column - self.first) // lanes
                spots = [[step * fours + four, vector + c, 0] for c in range(count)]
                loads = [self.buffer.vload(spot, f"uint8x{4 * lanes}") for spot in spots]
                use(index * unit.channels + four * 4, [tir.bind(load) for load in loads])


def unpack(packed: InRegisters, buffer: Any, place: Place) -> None:
    """Write a task's channels as u8, int8 + 128, into the buffer of `Unpacked`."""
    lanes = packed.isa.lanes
    origin = 0 if place.panel is None else place.panel.index * place.panel.channels

    def write(k: Any, vectors: list[Any]) -> None:
        for c, vector in enumerate(vectors):
            store(buffer, vector, [(k - origin) // 4, c, 0], 4 * lanes)

    packed = replace(packed, fetch=packed.fetch and place.early > 0)
    place = replace(place, pace=PACE * place.early)
    packed.each_four(place, 0, place.column, place.width // lanes, write)
