"""Matmul of int8 activations by weights of 2 to 6 bits whose groups have integer scales.

A weight is ``ws * (q - z) * s`` with a float scale of its output channel, and ``(q - z) * s`` is
within -128..127: the matmul is that of int8 weights per channel, and has its bits. At a few rows
tiles unpack in registers what they multiply; at more, a task unpacks its block of channels once,
into memory, and multiplies from there: panel by panel of K, each of which stays in the first-level
cache, and at many rows all of K, because then keeping the sums costs more. Without VNNI every
tile multiplies what is stored (`matmul_short_sums`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import (
    AsStored,
    QuantizedRows,
    interleave,
    quantized_rows,
)
from optc.backends.tvm.kernels.matmul.int_tiles import IntTiles
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm.kernels.matmul.places import BLOCK, Panels, Place
from optc.backends.tvm.kernels.matmul.products import Dots, Products
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.scaled_dots import ScaledDots
from optc.backends.tvm.kernels.matmul.schedule import Schedule, two_level_schedule
from optc.backends.tvm.kernels.matmul.short_sums import FOURS, ShortSums, sums_are_short
from optc.backends.tvm.kernels.matmul.tasks import Tall, TileEmitter, Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import (
    Operand,
    RowsAt,
    argument,
    building,
    in_order,
    round_up,
)
from optc.backends.tvm.kernels.matmul.two_level_weights import InRegisters, Unpacked, unpack
from optc.backends.tvm.kernels.matmul.weights import UNITS, GroupScales, PackedValues
from optc.errors import UnsupportedError

#: Rows of the tallest tile with 64 columns that unpacks in registers: each column has a scale and
#: an offset in registers besides its sums.
WIDE = 3
#: Rows of the tallest tile, which has the columns of one vector.
TALL_ROWS = 16
#: Rows of packed weights by which scales of groups are fetched ahead.
SCALES_AHEAD = 32
#: Input channels of a panel of K that is unpacked, more or less: 16 KiB.
PANEL_CHANNELS = 256
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
        bits: 2 to 6.
        schedule: How its work is cut up; None is the default of the instruction set.
    """

    n: int
    k: int
    group_size: int = 32
    bias: bool = False
    bits: int = 4
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.bits not in FOURS or self.group_size <= 0 or self.group_size % SUM_WIDTH:
            raise UnsupportedError(
                f"no matmul by {self.bits} bits with integer scales of groups of {self.group_size}",
                where="two_level_matmul",
                hint="bits 2 to 6; group_size a multiple of 32",
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
        """The way of tasks that unpack through K: in panels of whole groups, about equally long."""
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


def two_level_matmul(config: TwoLevelMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, G groups):
        xq int8 [T, Kp]: quantized activations, within +-127, 0 beyond K.
        xs float32 [T]: their scales.
        xsum int32 [T, Kp/32]: sums of each 32 of them.
        w uint8 [B, Kp*bits/32, 64, 4]: packed q (`optc.backends.tvm.weights.packing.pack_int`).
        wg uint8 [B, G, 2, 64]: s, and 128 - z * s, of each group.
        ws float32 [B, 1, 64]: scales of the channels.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].
    """
    with building(config.name) as builder:
        rows = tir.int32()
        x = quantized_rows(rows, config.k_padded)
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        emit_tiles(two_level_work(config, isa, rows, x, weights, out))
    return builder.get()


def two_level_work(
    config: TwoLevelMatmul,
    isa: Isa,
    rows: Any,
    x: QuantizedRows,
    weights: dict[str, Any],
    out: Any,
    rows_at: RowsAt = in_order,
    rooms: Rooms | None = None,
) -> Work:
    """The products of the kernel's operands."""
    rooms = rooms or Rooms()
    kp, schedule = config.k_padded, config.schedule_on(isa)
    values = PackedValues(weights["w"], config.bits, isa)
    unit = UNITS[config.bits]
    ahead = max(1, SCALES_AHEAD * unit.channels // unit.rows // config.group_size)
    scales = GroupScales(weights["wg"], isa, ahead)

    def of(products: Products, wide: int, columns: int = BLOCK, sums: int = 1) -> IntTiles:
        plain = replace(config.unpacked, schedule=replace(schedule, wide=wide))
        operands = (x.scale, x.sums, weights, out)
        return IntTiles(plain, isa, products, *operands, columns, rows_at, sums)

    def tiles(*options: Any, **more: Any) -> TileEmitter:
        return of(*options, **more).emit

    packed = InRegisters(values, scales, config.group_size)
    stored = AsStored(x.q, isa.lanes)

    def tall() -> TileEmitter:
        beside = interleave(x.q, rows, TALL_ROWS, isa.lanes)
        return tiles(Dots(packed, isa, beside), WIDE, isa.lanes)

    def prepare(task: Place) -> Callable[[Place], TileEmitter]:
        buffer = rooms.take((kp // 4, task.width // isa.lanes, 4 * isa.lanes), "uint8")

        def emit(task: Place) -> TileEmitter:
            unpack(packed, buffer, task)
            source = Unpacked(buffer, task.column, values)
            return tiles(Dots(source, isa, stored), schedule.wide)

        return emit

    if sums_are_short(config.bits, isa):
        short = ShortSums(values, config.group_size, isa, x.q, x.sums, scales)
        return Work(rows, config.n, kp, schedule, tiles(short, schedule.wide))
    if isa.arm:
        scaled = ScaledDots(values, config.group_size, scales, isa, x)
        lone = tiles(scaled, WIDE, sums=2)
    else:
        lone = tiles(Dots(packed, isa, stored), WIDE)
    work = Work(rows, config.n, kp, schedule, lone, prepare, config.panels, rooms=rooms)
    if isa.lanes < 16:  # a tile of one vector's columns is narrower than a cache line
        return work
    if isa.amx:
        quiet = replace(values, fetch=False), replace(scales, ahead=0)
        plain = of(Dots(packed, isa, stored), schedule.wide)
        bare = InRegisters(*quiet, config.group_size)
        return replace(work, cover=plain.amx_unpacking(x, weights["w"], bare))
    return replace(work, tall=Tall(TALL_ROWS, tall))
