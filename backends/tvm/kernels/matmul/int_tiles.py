"""Register tiles of the matmuls that multiply integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import (
    AsStored,
    QuantizedRows,
    group_sum,
    quantized_rows,
    row_sum,
)
from optc.backends.tvm.kernels.matmul.amx.groups import CHUNK_ROWS, UNPACKED_CHUNK_ROWS
from optc.backends.tvm.kernels.matmul.amx.int_groups import AmxTiles
from optc.backends.tvm.kernels.matmul.amx.sources import Packed, Source, unpacked
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.places import BLOCK, Panel, Place
from optc.backends.tvm.kernels.matmul.products import Dots, Products
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.short_sums import ShortSums, sums_are_short
from optc.backends.tvm.kernels.matmul.tasks import Cover, TileEmitter, Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import (
    Registers,
    RowsAt,
    TileRows,
    argument,
    building,
    fma,
    in_order,
    store,
    store_tile,
)
from optc.backends.tvm.kernels.matmul.weights import PackedValues, PackedWeights, Weights


@dataclass(frozen=True)
class IntTiles:
    """Emits register tiles; holds the operands.

    Attributes:
        config: The matmul, whose bits and offset are those of the weights that are multiplied.
        isa: What the kernel is compiled for.
        products: Adds products of weights and activations to sums.
        xs: float32 [T]: their scales.
        xsum: int32 [T, Kp/32]: their sums.
        weights: Packed operands by name, as `IntMatmul.weights` says; ``w`` is not read from here.
        out: float32 [T, N].
        columns: Most columns of a tile.
        rows_at: Where a tile's rows lie.
        sums: Registers of sums that a value has while its products are added.
        row_total: The sum of a row's activations over all of K, where that is known.
    """

    config: IntMatmul
    isa: Isa
    products: Products
    xs: Any
    xsum: Any
    weights: dict[str, Any]
    out: Any
    columns: int = BLOCK
    rows_at: RowsAt = in_order
    sums: int = 1
    row_total: Callable[[Any], Any] | None = None

    def emit(self, start: Any, rows: int, place: Place) -> None:
        """One tile of ``rows`` rows and a task's channels, in parts that fit into registers."""
        fitting = self.config.columns(rows * self.sums, self.isa)
        width = min(place.width, self.columns, fitting)
        at = self.rows_at(start, rows)
        if width == place.width:
            self._part(at, place, place.column, width)
            return
        parts = place.width // width
        with tir.serial(parts) as part:
            column = tir.bind(place.column + part * width)
            self._part(at, place.part(part, parts), column, width)

    def amx(
        self,
        x: QuantizedRows,
        packed: Any,
        source: Callable[[Place, Rooms], Source],
        chunk: int = CHUNK_ROWS,
    ) -> Cover:
        """Tiles of AMX for many rows, whose sums these scale and write.

        Args:
            x: The activations.
            packed: Packed weights whose next block is fetched; None fetches nothing.
            source: Gives a task's weights.
            chunk: Rows of a task at least, where rows are split among threads.
        """

        def finish(products: Products, total: Callable[[Any], Any]) -> TileEmitter:
            return replace(self, products=products, columns=BLOCK, sums=1, row_total=total).emit

        return AmxTiles(finish, self.isa, x, self.rows_at, packed, source).cover(chunk)

    def amx_unpacking(self, x: QuantizedRows, packed: Any, weights: Weights) -> Cover:
        """The same for weights that each task unpacks first."""

        def source(place: Place, rooms: Rooms) -> Source:
            return unpacked(weights, self.config.k_padded, place, rooms)

        return self.amx(x, packed, source, UNPACKED_CHUNK_ROWS)

    def _part(self, at: TileRows, place: Place, column: Any, width: int) -> None:
        lanes, rows = self.isa.lanes, len(at.read)
        sums = Registers(rows, width // lanes, lanes, "int32")
        result = Registers(rows, width // lanes, lanes, "float32")
        if self.config.group_size:
            for cell in result.cells():
                result[cell] = tir.broadcast(tir.float32(0), lanes)
            with tir.serial(self.config.groups) as group:
                self._sum(sums, at, place, group, column)
                scales = self._scales(place.block, group, column, width)
                for r, c in result.cells():
                    value = tir.cast(sums[r, c], f"float32x{lanes}")
                    result[r, c] = fma(value, scales[c], result[r, c], lanes)
                if self.config.minimums:
                    self._add_minimums(result, at, place.block, group, column)
            self._finish(result, at, place, column)
        elif place.panel is None:
            self._sum(sums, at, place, 0, column)
            self._finish_channels(sums, result, at, place, column)
        else:
            panel = place.panel
            self._continue(sums, at, place, panel, column)
            with tir.If(panel.is_last):
                with tir.Then():
                    self._finish_channels(sums, result, at, place, column)
                with tir.Else():
                    for cell, spot in self._kept(sums, place, panel, column):
                        store(panel.kept, sums[cell], [spot], lanes)

    def _continue(
        self, sums: Registers, at: TileRows, place: Place, panel: Panel, column: Any
    ) -> None:
        """Integer products of a panel, added to what the panels before it left."""
        with tir.If(panel.index == 0):
            with tir.Then():
                self._start(sums, at, place.block, 0, column)
            with tir.Else():
                for cell, spot in self._kept(sums, place, panel, column):
                    sums[cell] = panel.kept.vload([spot], sums.dtype)
        self.products.add(sums, at.read, place, 0, column)

    def _kept(
        self, sums: Registers, place: Place, panel: Panel, column: Any
    ) -> Iterator[tuple[tuple[int, int], Any]]:
        """Each vector of sums and where the task keeps it."""
        # 64 bits, so that what is constant becomes part of the instructions' addresses.
        first = tir.bind(tir.cast(place.kept * panel.room + (column - place.column), "int64"))
        for r, c in sums.cells():
            yield (r, c), first + tir.int64(r * place.width + c * self.isa.lanes)

    def _finish_channels(
        self, sums: Registers, result: Registers, at: TileRows, place: Place, column: Any
    ) -> None:
        """Scale the sums over all of K by their channels' scales and write the tile out."""
        lanes = self.isa.lanes
        scales = self._scales(place.block, 0, column, sums.vectors * lanes)
        for r, c in result.cells():
            result[r, c] = tir.cast(sums[r, c], f"float32x{lanes}") * scales[c]
        self._finish(result, at, place, column)

    def _scales(self, block: Any, group: Any, column: Any, width: int) -> list[Any]:
        """The scales of the tile's columns as float32 vectors."""
        return self._of_group("ws", block, group, column, width)

    def _of_group(self, name: str, block: Any, group: Any, column: Any, width: int) -> list[Any]:
        """An operand's values for the tile's columns as float32 vectors."""
        lanes = self.isa.lanes
        dtype = f"{'float16' if self.config.group_size else 'float32'}x{lanes}"
        loads = [
            self.weights[name].vload([block, group, column + c * lanes], dtype)
            for c in range(width // lanes)
        ]
        return [tir.bind(tir.cast(load, f"float32x{lanes}")) for load in loads]

    def _sum(self, sums: Registers, at: TileRows, place: Place, group: Any, column: Any) -> None:
        """Integer products of one group (of all of K per channel), less the zero points'."""
        self._start(sums, at, place.block, group, column)
        self.products.add(sums, at.read, place, group, column)

    def _add_minimums(
        self, result: Registers, at: TileRows, block: Any, group: Any, column: Any
    ) -> None:
        """Add what stored zeros stand for, times the sum of the group's activations."""
        lanes = self.isa.lanes
        minimums = self._of_group("wm", block, group, column, result.vectors * lanes)
        for r, row in enumerate(at.read):
            total = tir.cast(self._activation_sum(row, group), "float32")
            spread = tir.bind(tir.broadcast(total, lanes))
            for c, minimum in enumerate(minimums):
                result[r, c] = fma(spread, minimum, result[r, c], lanes)

    def _start(self, sums: Registers, at: TileRows, block: Any, group: Any, column: Any) -> None:
        """Start the sums at minus zero point times the sum of the group's activations."""
        lanes, excess = self.isa.lanes, self.products.offset
        symmetric = excess - (0 if self.config.minimums else 1 << (self.config.bits - 1))
        if not self.config.asymmetric and not symmetric:
            for cell in sums.cells():
                sums[cell] = tir.broadcast(tir.int32(0), lanes)
            return
        zeros = []
        for c in range(sums.vectors):
            if self.config.asymmetric:
                place = [block, group, column + c * lanes]
                load = tir.cast(self.weights["wz"].vload(place, f"uint8x{lanes}"), f"int32x{lanes}")
                zeros.append(tir.bind(tir.broadcast(tir.int32(excess), lanes) - load))
            else:
                zeros.append(tir.broadcast(tir.int32(symmetric), lanes))
        totals = [self._activation_sum(row, group) for row in at.read]
        for r, c in sums.cells():
            sums[r, c] = zeros[c] * tir.broadcast(totals[r], lanes)

    def _activation_sum(self, row: Any, group: Any) -> Any:
        """The sum of a row's activations over one group (over all of K per channel)."""
        if self.config.group_size:
            return group_sum(self.xsum, row, group, self.config.group_size)
        if self.row_total is not None:
            return self.row_total(row)
        return row_sum(self.xsum, row, self.isa.lanes)

    def _finish(self, result: Registers, at: TileRows, place: Place, column: Any) -> None:
        """Scale by the activations' scale, add the bias, write the tile out."""
        lanes = self.isa.lanes
        first = tir.bind(place.block * BLOCK + column)
        scales = [tir.bind(tir.broadcast(self.xs[row], lanes)) for row in at.read]

        def value(r: int, c: int) -> Any:
            if not self.config.bias:
                return result[r, c] * scales[r]
            bias = self.weights["bias"].vload([first + c * lanes], f"float32x{lanes}")
            return fma(result[r, c], scales[r], bias, lanes)

        store_tile(self.out, at.write, place.output(first), result, value)


def int_matmul(config: IntMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, G groups):
        xq int8 [T, Kp]: quantized activations, within +-127, 0 beyond K.
        xs float32 [T]: their scales.
        xsum int32 [T, Kp/32]: sums of each 32 of them.
        w uint8 [B, Kp/4, 64, 4] (8 bits) or [B, Kp/8, 64, 4] (4 bits): packed weights.
        ws float32 [B, 1, 64] per channel, float16 [B, G, 64] with groups.
        wz uint8 [B, G, 64]: only if asymmetric.
        wm float16 [B, G, 64]: only if ``minimums``.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].
    """
    with building(config.name) as builder:
        rows = tir.int32()
        x = quantized_rows(rows, config.k_padded)
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        emit_tiles(int_work(config, isa, rows, x, weights, out))
    return builder.get()


def int_work(
    config: IntMatmul,
    isa: Isa,
    rows: Any,
    x: QuantizedRows,
    weights: dict[str, Any],
    out: Any,
    rows_at: RowsAt = in_order,
) -> Work:
    """The products of the kernel's operands."""
    schedule = config.schedule_on(isa)
    values = PackedValues(weights["w"], config.bits, isa)
    products: Products
    if sums_are_short(config.bits, isa):
        products = ShortSums(values, config.group_size, isa, x.q, x.sums)
    else:
        weight = PackedWeights(values, config.group_size, 2 if isa.i8mm else 1)
        products = Dots(weight, isa, AsStored(x.q, isa.lanes), config.bits)
    tiles = IntTiles(config, isa, products, x.scale, x.sums, weights, out, rows_at=rows_at)
    if isa.arm and config.group_size:
        tiles = replace(tiles, sums=2)
    panels, short = config.panels, config.short_panels
    work = Work(rows, config.n, config.k_padded, schedule, tiles.emit, panels=panels, short=short)
    if not isa.amx or config.group_size:
        return work
    if config.bits == 8:
        return replace(work, cover=tiles.amx(x, values.w, lambda *_: Packed(values.w)))
    bare = PackedWeights(replace(values, fetch=False), 0)
    return replace(work, cover=tiles.amx_unpacking(x, values.w, bare))
