"""Tiles of AMX for the matmuls that multiply integers: up to 32 rows of a block of 64 channels.

    17 to 32 rows: 32 columns, then the others      up to 16 rows: all columns at once

              weights 6   weights 7                      weights 5  6   7   5
    rows  4 [    0           1     ]              rows 4 [       0  1   2   3 ]
    rows  5 [    2           3     ]

A step takes 64 input channels. The packed layout, four channels of 16 columns side by side, is that
of a tile; activations are read where they lie. Sums go through memory to the code that scales those
of vectors, row by row, so that results have the same bits. Channels beyond the last whole step, 32
or none, are added there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import AsStored, QuantizedRows, row_sum
from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.amx.sources import Source
from optc.backends.tvm.kernels.matmul.dot import dot_ops
from optc.backends.tvm.kernels.matmul.places import BLOCK, LINE, Place, fetch_lines
from optc.backends.tvm.kernels.matmul.products import Products
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.tasks import Cover, Span, TileEmitter
from optc.backends.tvm.kernels.matmul.tiles import (
    Registers,
    RowsAt,
    in_order,
    local,
    variable,
)

#: Input channels of a step, and rows of packed weights that hold them.
STEP, STEP_ROWS = amx.BYTES, amx.BYTES // 4
#: Least rows that are multiplied so: of fewer, memory bounds, and one row's code stays as it is.
LEAST_ROWS = 8
#: Rows of a group: two tiles.
GROUP = 2 * amx.ROWS
#: Rows of a task at least, where rows are split among threads as well; more where each unpacks.
CHUNK_ROWS, UNPACKED_CHUNK_ROWS = 2 * GROUP, 8 * GROUP
_TOTALS, _ROWS, _WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)
#: Tiles of weights of up to 16 rows, in turn.
_TURNS = (5, 6, 7, 5)


#: ``finish(products, total)`` emits tiles of rows whose activations have that total over all of K.
Finish = Callable[[Products, Callable[[Any], Any]], TileEmitter]


@dataclass(frozen=True)
class FromTiles:
    """The products of one row that tiles left in memory, as a tile of vectors takes them.

    Attributes:
        sums: int32 [groups's rows * width]: of the task.
        at: Where the row's sums begin.
        source: The weights, for channels beyond the last whole step.
        x: The activations.
        isa: What the kernel is compiled for.
        offset: ``add`` multiplies (stored weight - offset).
    """

    sums: Any
    at: Any
    source: Source
    x: QuantizedRows
    isa: Isa
    offset: int = 0

    def add(
        self, sums: Registers, rows: Sequence[Any], place: Place, group: Any, column: Any
    ) -> None:
        """Add all products of a row."""
        lanes, channels = self.isa.lanes, int(self.x.q.shape[1])
        for c in range(sums.vectors):
            stored = self.sums.vload([self.at + c * lanes], sums.dtype)
            sums[0, c] = sums[0, c] + stored
        ops, activations = dot_ops(self.isa), AsStored(self.x.q, lanes)
        rest = channels % STEP // 4
        with tir.serial(rest) as index:
            four = tir.bind(channels // STEP * STEP_ROWS + index)
            of_row = activations.four(rows[0], four * 4)
            for c, vector in enumerate(self.source.vectors(place, four, column, sums.vectors)):
                sums[0, c] = ops.dot(sums[0, c], ops.prepare(vector), of_row)


@dataclass(frozen=True)
class AmxTiles:
    """The rows of a task, group by group; holds the operands.

    Attributes:
        finish: Gives what scales the sums of rows and writes them out.
        isa: What the kernel is compiled for.
        x: The activations.
        rows_at: Where rows lie.
        packed: Packed weights, u8 [B, rows, 64, 4], of which the next block is fetched; None are
            fetched by what makes the weights of a task.
        source: Gives the weights of a task, which may be made in its memory.
    """

    finish: Finish
    isa: Isa
    x: QuantizedRows
    rows_at: RowsAt
    packed: Any
    source: Callable[[Place, Rooms], Source]

    def emit(self, span: Span, rooms: Rooms) -> None:
        """All rows of one task, whose memory is of ``rooms``."""
        place, channels = span.place, int(self.x.q.shape[1])
        source = self.source(place, rooms)
        sums = rooms.take((amx.ROWS * BLOCK,), "int32")
        totals = rooms.take((GROUP,), "int32")
        # rows that do not lie in order are copied side by side
        copied = None if self.rows_at is in_order else rooms.take((GROUP, channels), "int8")
        config = local(amx.CONFIG_BYTES, "uint8")
        amx.start_config(config)
        count = variable(span.last - span.first)
        groups = variable((count + (GROUP - 1)) // GROUP)
        with tir.serial(groups) as group:
            start = variable(span.first + group * GROUP)
            height = variable(tir.min(GROUP, span.last - start))
            self._start_group(start, height, totals, copied)
            task = _Group(self, source, place, start, height, sums, totals, copied, config)
            with tir.If(height > amx.ROWS):
                with tir.Then():
                    task.halves(group, groups)
                with tir.Else():
                    task.whole(group, groups)
        amx.release()

    def cover(self, chunk: int = CHUNK_ROWS) -> Cover:
        """These as the way of tasks of so many rows at least."""
        return Cover(LEAST_ROWS, chunk, GROUP, self.emit)

    def _start_group(self, start: Any, height: Any, totals: Any, copied: Any) -> None:
        """The sums of activations of each row, and the rows side by side."""
        with tir.serial(height) as row:
            read = self.rows_at(start + row, 1).read[0]
            tir.buffer_store(totals, row_sum(self.x.sums, read, self.isa.lanes), [row])
            if copied is not None:
                with tir.serial(int(copied.shape[1]) // 32) as part:
                    values = self.x.q.vload([read, part * 32], "int8x32")
                    tir.buffer_store(copied, values, [row, tir.ramp(part * 32, 1, 32)])


@dataclass(frozen=True)
class _Group:
    """A group of rows in a task."""

    work: AmxTiles
    source: Source
    place: Place
    start: Any
    height: Any
    sums: Any
    totals: Any
    copied: Any
    config: Any

    @property
    def _steps(self) -> int:
        return int(self.work.x.q.shape[1]) // STEP

    def halves(self, group: Any, groups: Any) -> None:
        """17 to 32 rows: two tiles of rows by two of columns, twice."""
        below = variable(self.height - amx.ROWS)
        lower = {tile: amx.Shape(below) for tile in (_TOTALS[2], _TOTALS[3], _ROWS[1])}
        others = (*_TOTALS[:2], _ROWS[0], *_WEIGHTS)
        amx.configure(self.config, {**{tile: amx.Shape() for tile in others}, **lower})
        width = BLOCK // 2
        with tir.serial(2) as half:
            column = tir.bind(half * width)
            for tile in _TOTALS:
                amx.zero(tile)
            fetch = self._fetching(group * 2 + half, groups * 2)
            with tir.serial(self._steps) as step:
                fetch(step)
                for index, tile in enumerate(_WEIGHTS):
                    self._load_weights(tile, step, column + index * LINE)
                for index, tile in enumerate(_ROWS):
                    self._load_rows(tile, step, index * amx.ROWS)
                    for c, weights in enumerate(_WEIGHTS):
                        amx.dot_bytes(_TOTALS[2 * index + c], tile, weights)
            for index, tile in enumerate(_TOTALS):
                self._store(tile, index // 2 * amx.ROWS, index % 2, width)
            self._finish(column, width)

    def whole(self, group: Any, groups: Any) -> None:
        """Up to 16 rows: one tile of them by four of columns."""
        short = {tile: amx.Shape(self.height) for tile in (*_TOTALS, _ROWS[0])}
        amx.configure(self.config, {**short, **{tile: amx.Shape() for tile in _TURNS}})
        fetch = self._fetching(group * 2, groups * 2 - 1)
        with tir.serial(self._steps) as step:
            fetch(step)
            self._load_rows(_ROWS[0], step, 0)
            for c, tile in enumerate(_TURNS):
                self._load_weights(tile, step, c * LINE)
                amx.dot_bytes(_TOTALS[c], _ROWS[0], tile)
        for c, tile in enumerate(_TOTALS):
            self._store(tile, 0, c, BLOCK)
        self._finish(0, BLOCK)

    def _load_weights(self, tile: int, step: Any, column: Any) -> None:
        amx.load(tile, self.source.at(self.place, step * STEP_ROWS, column), self.source.stride)

    def _load_rows(self, tile: int, step: Any, row: int) -> None:
        stored, first = (self.work.x.q, self.start) if self.copied is None else (self.copied, 0)
        address = tir.address_of(stored[first + row, step * STEP])
        amx.load(tile, address, int(stored.shape[1]))

    def _store(self, tile: int, row: int, vector: int, width: int) -> None:
        address = tir.address_of(self.sums[row * width + vector * LINE])
        amx.store(tile, address, 4 * width)

    def _finish(self, column: Any, width: int) -> None:
        """Scale and write what tiles left, row by row."""
        work, place = self.work, replace(self.place, column=column, width=width)
        with tir.serial(self.height) as row:
            at = variable(row * width)
            products = FromTiles(self.sums, at, self.source, work.x, work.isa)
            work.finish(products, lambda _: self.totals[row])(self.start + row, 1, place)

    def _fetching(self, turn: Any, turns: Any) -> Callable[[Any], None]:
        """The fetching, in each step of one of the ``turns`` over a block, of a part of the packed
        weights behind it: all turns fetch them once."""
        packed, steps = self.work.packed, max(1, self._steps)
        if packed is None:
            return lambda step: None
        behind = int(packed.shape[1])
        lines = behind * BLOCK // LINE
        share = variable((lines + (turns * steps - 1)) // (turns * steps))
        first = variable(turn * steps * share)

        def fetch(step: Any) -> None:
            number = variable(tir.min(share, lines - first - step * share))
            with tir.serial(tir.max(number, 0)) as index:
                channel = (first + step * share + index) * LINE
                fetch_lines(packed, [self.place.block, behind, channel], 1)

        return fetch
