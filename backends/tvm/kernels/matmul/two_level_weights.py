"""Weights of 2 to 6 bits whose groups have integer scales, as the unsigned values of int8 weights:
unpacked in registers, or by a task before its tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import PACE, Place
from optc.backends.tvm.kernels.matmul.tiles import store
from optc.backends.tvm.kernels.matmul.weights import UNITS, GroupScales, PackedValues, Use


@dataclass(frozen=True)
class InRegisters:
    """Values times their group's scale, moved to the unsigned values of int8 weights.

    Attributes:
        values: The values, of 2 to 6 bits.
        scales: Of the groups.
        group_size: Input channels of a group.
    """

    values: PackedValues
    scales: GroupScales
    group_size: int

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """A group's scales are spread to the lanes' bytes before its channels.

        Fetches lie between the channels: all of a unit of several rows at once hold up its loads.
        """
        values, scales = self.values, self.scales
        channels, total = UNITS[values.bits].channels, values.units
        steps = self.group_size // channels
        first, groups = place.extent(int(scales.wg.shape[1]), self.group_size)
        with tir.serial(groups) as following:
            index = tir.bind(first + following)
            scales.fetch(place, index)
            columns = [column + c * values.isa.lanes for c in range(count)]
            spreads = [
                (scales.scale(place.block, index, at), scales.offset(place.block, index, at))
                for at in columns
            ]
            number: Any = steps if total % steps == 0 else tir.min(steps, total - index * steps)
            with tir.serial(number) as step:
                unit = tir.bind(index * steps + step)
                for four, vectors in enumerate(values.unit(place, unit, column, count)):
                    pairs = zip(vectors, spreads, strict=True)
                    scaled = [tir.bind(self._scaled(vector, *by)) for vector, by in pairs]
                    use(unit * channels + four * 4, scaled)
                    values.fetch_row(place, unit, four, column, count * values.isa.lanes)

    def _scaled(self, values: Any, scale: Any, offset: Any) -> Any:
        """u8: value * scale + offset; no product of a byte carries into the next one."""
        lanes = self.values.isa.lanes
        product = tir.reinterpret(values, dtype=f"int16x{2 * lanes}") * scale
        return tir.reinterpret(product, dtype=f"uint8x{4 * lanes}") + offset


@dataclass(frozen=True)
class Unpacked:
    """A task's channels, unpacked before its tiles.

    Attributes:
        buffer: u8 [Kp / 4, vectors, bytes of a vector], which hold the task's columns in order,
            from the first channel of the place's panel on.
        first: First channel of the task within its block.
        values: The packed values, fetched ahead for the next task.
    """

    buffer: Any
    first: Any
    values: PackedValues

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """In steps of a unit of packed weights, by which the next ones are fetched."""
        values = self.values
        lanes, unit = values.isa.lanes, UNITS[values.bits]
        fours = unit.channels // 4
        first, number = place.extent(values.units, unit.channels)
        with tir.serial(number) as step:
            index = tir.bind(first + step)
            values.fetch_unit(place, index, column, count * lanes)
            for four in range(fours):
                vector = (column - self.first) // lanes
                spots = [[step * fours + four, vector + c, 0] for c in range(count)]
                loads = [self.buffer.vload(spot, f"uint8x{4 * lanes}") for spot in spots]
                use(index * unit.channels + four * 4, [tir.bind(load) for load in loads])


def unpack(packed: InRegisters, buffer: Any, place: Place) -> None:
    """Write a task's channels as u8, int8 + 128, into the buffer of `Unpacked`."""
    values = packed.values
    lanes = values.isa.lanes
    origin = 0 if place.panel is None else place.panel.index * place.panel.channels

    def write(k: Any, vectors: list[Any]) -> None:
        for c, vector in enumerate(vectors):
            store(buffer, vector, [(k - origin) // 4, c, 0], 4 * lanes)

    values = replace(values, fetch=values.fetch and place.early > 0)
    packed = replace(
        packed,
        values=values,
        scales=replace(packed.scales, ahead=packed.scales.ahead if values.fetch else 0),
    )
    place = replace(place, pace=PACE * place.early)
    packed.each_four(place, 0, place.column, place.width // lanes, write)
