"""Matmul of int8 activations by weights of 4 or 6 bits whose groups have integer scales.

A weight is ``ws * (q - z) * s`` with a float scale of its output channel, and ``(q - z) * s`` is
within -128..127: the matmul is that of int8 weights per channel, and has its bits. At a few rows
tiles unpack in registers what they multiply; at more, a task unpacks its block of channels once,
into memory, and multiplies from there: panel by panel of K, each of which stays in the first-level
cache, and at many rows all of K, because then keeping the sums costs more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul_dot import dot_ops
from optc.backends.tvm.kernels.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm.kernels.matmul_int_tiles import IntTiles
from optc.backends.tvm.kernels.matmul_places import (
    BLOCK,
    PACE,
    Panels,
    Place,
    fetch_ahead,
    fetch_lines,
)
from optc.backends.tvm.kernels.matmul_tiles import (
    Operand,
    TileEmitter,
    argument,
    building,
    emit_tiles,
    round_up,
    store,
)
from optc.backends.tvm.kernels.matmul_weights import Use, high_pairs, nibbles
from optc.backends.tvm.schedule import Schedule, two_level_schedule
from optc.errors import UnsupportedError


@dataclass(frozen=True)
class _Unit:
    """Rows of packed weights that hold the same input channels, and how many these are."""

    rows: int
    channels: int


#: By bits. A row of nibbles has 8 channels; two of them, then one with the two high bits of their
#: 16 channels.
_UNITS = {4: _Unit(1, 8), 6: _Unit(3, 16)}
#: Rows of the tallest tile with 64 columns that unpacks in registers: each column has a scale and
#: an offset in registers besides its sums.
WIDE = 3
#: Input channels of a panel of K that is unpacked, more or less: 16 KiB.
PANEL_CHANNELS = 256
#: Rows of packed weights by which scales of groups are fetched ahead.
SCALES_AHEAD = 32
#: Rows up to which K is unpacked in panels.
PANEL_ROWS = 32


@dataclass(frozen=True)
class TwoLevelMatmul:
    """Shape and weight format.

    Attributes:
        n: Output channels N.
        k: Input channels K, as the model has them.
        group_size: Input channels that share an integer scale and a zero point.
        bias: A bias is an operand.
        bits: 4 or 6.
        schedule: How its work is cut up; None is the default of the instruction set.
    """

    n: int
    k: int
    group_size: int = 32
    bias: bool = False
    bits: int = 4
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.bits not in _UNITS or self.group_size <= 0 or self.group_size % SUM_WIDTH:
            raise UnsupportedError(
                f"no matmul by {self.bits} bits with integer scales of groups of {self.group_size}",
                where="two_level_matmul",
                hint="bits 4 or 6; group_size a multiple of 32",
            )

    @property
    def unpacked(self) -> IntMatmul:
        """The same matmul by int8 weights."""
        return IntMatmul(self.n, self.k, bias=self.bias)

    def schedule_on(self, isa: Isa) -> Schedule:
        """The schedule it is built with."""
        return self.schedule or two_level_schedule(self.unpacked.blocks, isa)

    @property
    def k_padded(self) -> int:
        """Kp: K rounded up to 32; activations there are 0."""
        return self.unpacked.k_padded

    @property
    def groups(self) -> int:
        """G: integer scales of one output channel."""
        return -(-self.k // self.group_size)

    @property
    def panels(self) -> Panels | None:
        """How tasks that unpack go through K: in panels of whole groups, about equally long."""
        count = max(1, round(self.k / PANEL_CHANNELS))
        channels = round_up(-(-self.k // count), self.group_size)
        return Panels(channels, PANEL_ROWS, whole=True) if channels < self.k_padded else None

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        operands = self.unpacked.weights
        blocks = self.unpacked.blocks
        operands["w"] = ((blocks, self.k_padded * self.bits // 32, BLOCK, 4), "uint8")
        packed = {"w": operands.pop("w"), "wg": ((blocks, self.groups, 2, BLOCK), "uint8")}
        return {**packed, **operands}

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config but for its schedule."""
        bias = "_bias" * self.bias
        return f"matmul_two_level{self.bits}_g{self.group_size}{bias}_{self.n}x{self.k}"


@dataclass(frozen=True)
class _InRegisters:
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
        lanes, unit = self.isa.lanes, _UNITS[self.bits]
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
        lanes, rows = self.isa.lanes, _UNITS[self.bits].rows
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
class _Unpacked:
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
        lanes, unit = self.isa.lanes, _UNITS[self.bits]
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


def two_level_matmul(config: TwoLevelMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, G groups):
        xq int8 [T, Kp]: quantized activations, within +-127, 0 beyond K.
        xs float32 [T]: their scales.
        xsum int32 [T, Kp/32]: sums of each 32 of them.
        w uint8 [B, Kp*bits/32, 64, 4]: packed q (`optc.backends.tvm.packing.pack_int`).
        wg uint8 [B, G, 2, 64]: s, and 128 - z * s, of each group.
        ws float32 [B, 1, 64]: scales of the channels.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].
    """
    kp, schedule = config.k_padded, config.schedule_on(isa)
    with building(config.name) as builder:
        rows = tir.int32()
        activations = (
            argument("xq", (rows, kp), "int8"),
            argument("xs", (rows,), "float32"),
            argument("xsum", (rows, kp // SUM_WIDTH), "int32"),
        )
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        fetch = bool(schedule.fetch)
        packed = _InRegisters(
            weights["w"], config.bits, weights["wg"], config.group_size, isa, fetch
        )

        def tiles(source: Any, wide: int) -> TileEmitter:
            plain = replace(config.unpacked, schedule=replace(schedule, wide=wide))
            ops = dot_ops(isa, 8)
            return IntTiles(plain, isa, ops, *activations, weights, source, out).emit

        def prepare(task: Place) -> TileEmitter:
            buffer = tir.alloc_buffer((kp // 4, task.width // isa.lanes, 4 * isa.lanes), "uint8")
            _unpack(packed, buffer, task)
            source = _Unpacked(buffer, task.column, weights["w"], config.bits, isa, fetch)
            return tiles(source, schedule.wide)

        emit_tiles(rows, config.n, kp, schedule, tiles(packed, WIDE), prepare, config.panels)
    return builder.get()


def _unpack(packed: _InRegisters, buffer: Any, place: Place) -> None:
    """Write a task's channels as u8, int8 + 128, into the buffer of `_Unpacked`."""
    lanes = packed.isa.lanes
    origin = 0 if place.panel is None else place.panel.index * place.panel.channels

    def write(k: Any, vectors: list[Any]) -> None:
        for c, vector in enumerate(vectors):
            store(buffer, vector, [(k - origin) // 4, c, 0], 4 * lanes)

    packed = replace(packed, fetch=packed.fetch and place.early > 0)
    place = replace(place, pace=PACE * place.early)
    packed.each_four(place, 0, place.column, place.width // lanes, write)
