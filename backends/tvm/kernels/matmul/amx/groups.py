"""Tiles of AMX for the rows of a task: up to 32 at a time of a block of 64 output channels.

    17 to 32 rows: 32 columns, then the others      up to 16 rows: all columns at once

              weights 6   weights 7                      weights 5  6   7   5
    rows  4 [    0           1     ]              rows 4 [       0  1   2   3 ]
    rows  5 [    2           3     ]

A step takes 64 bytes of each row's activations. The packed layout of integers and of bfloat16, as
many input channels of a column side by side as have four bytes, is that of a tile; activations are
read where they lie. Sums go through memory to the code of vectors, row by row, which adds what lies
beyond the last whole step, scales and writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.amx.sources import Source
from optc.backends.tvm.kernels.matmul.places import BLOCK, LINE, Place, fetch_lines
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.tasks import Span
from optc.backends.tvm.kernels.matmul.tiles import RowsAt, in_order, local, variable

#: Rows of packed weights of a step.
STEP_ROWS = amx.BYTES // 4
#: Rows of a group: two tiles.
GROUP = 2 * amx.ROWS
#: Rows of a task at least, where rows are split among threads as well; more where each unpacks.
CHUNK_ROWS, UNPACKED_CHUNK_ROWS = 2 * GROUP, 8 * GROUP
_TOTALS, _ROWS, _WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)
#: Tiles of weights of up to 16 rows, in turn.
_TURNS = (5, 6, 7, 5)


@dataclass(frozen=True)
class Sums:
    """The products that tiles left in memory.

    Attributes:
        buffer: int32 or float32.
        at: Where a row's sums begin.
    """

    buffer: Any
    at: Any

    def vector(self, index: int, lanes: int) -> Any:
        """A vector of the row's sums."""
        return self.buffer.vload([self.at + index * lanes], f"{self.buffer.dtype}x{lanes}")


class Finish(Protocol):
    """The code of vectors behind the tiles of a task."""

    def start(self, start: Any, height: Any) -> None:
        """Emit what comes before a group: of its first row in the task's, and how many."""
        ...

    def row(self, sums: Sums, row: Any, start: Any, place: Place) -> None:
        """Emit what a row's sums become: its index in the group, the group's first row, and the
        place, whose columns the sums are of."""
        ...


@dataclass(frozen=True)
class Groups:
    """The rows of a task, group by group; holds the operands.

    Attributes:
        dot: Emits a product of tiles: of sums, activations and weights.
        dtype: Of sums, ``int32`` or ``float32``.
        x: Activations [T, at least whole steps], int8 or the bits of bfloat16 in uint16.
        steps: Of 64 bytes, whole ones, over K.
        rows_at: Where rows lie.
        packed: Packed weights [B, rows, 64, ...], of which the next block is fetched; None are
            fetched by what makes the weights of a task.
    """

    dot: Callable[[int, int, int], None]
    dtype: str
    x: Any
    steps: int
    rows_at: RowsAt
    packed: Any

    @property
    def step_channels(self) -> int:
        """Input channels of a step."""
        return amx.BYTES // np.dtype(self.x.dtype).itemsize

    def emit(self, span: Span, rooms: Rooms, source: Source, finish: Finish) -> None:
        """All rows of one task, whose memory is of ``rooms``."""
        sums = rooms.take((amx.ROWS * BLOCK,), self.dtype)
        # rows that do not lie in order are copied side by side
        ordered, width = self.rows_at is in_order, int(self.x.shape[1])
        copied = None if ordered else rooms.take((GROUP, width), self.x.dtype)
        config = local(amx.CONFIG_BYTES, "uint8")
        amx.start_config(config)
        count = variable(span.last - span.first)
        groups = variable((count + (GROUP - 1)) // GROUP)
        with tir.serial(groups) as group:
            start = variable(span.first + group * GROUP)
            height = variable(tir.min(GROUP, span.last - start))
            finish.start(start, height)
            if copied is not None:
                self._copy(start, height, copied)
            task = _Group(self, source, finish, span.place, start, height, sums, copied, config)
            with tir.If(height > amx.ROWS):
                with tir.Then():
                    task.halves(group, groups)
                with tir.Else():
                    task.whole(group, groups)
        amx.release()

    def _copy(self, start: Any, height: Any, copied: Any) -> None:
        """Copy the rows of a group side by side."""
        lanes = self.step_channels // 2
        with tir.serial(height) as row:
            read = self.rows_at(start + row, 1).read[0]
            with tir.serial(int(copied.shape[1]) // lanes) as part:
                values = self.x.vload([read, part * lanes], f"{self.x.dtype}x{lanes}")
                tir.buffer_store(copied, values, [row, tir.ramp(part * lanes, 1, lanes)])


@dataclass(frozen=True)
class _Group:
    """A group of rows in a task."""

    work: Groups
    source: Source
    finish: Finish
    place: Place
    start: Any
    height: Any
    sums: Any
    copied: Any
    config: Any

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
            with tir.serial(self.work.steps) as step:
                fetch(step)
                for index, tile in enumerate(_WEIGHTS):
                    self._load_weights(tile, step, column + index * LINE)
                for index, tile in enumerate(_ROWS):
                    self._load_rows(tile, step, index * amx.ROWS)
                    for c, weights in enumerate(_WEIGHTS):
                        self.work.dot(_TOTALS[2 * index + c], tile, weights)
            for index, tile in enumerate(_TOTALS):
                self._store(tile, index // 2 * amx.ROWS, index % 2, width)
            self._finish(column, width)

    def whole(self, group: Any, groups: Any) -> None:
        """Up to 16 rows: one tile of them by four of columns."""
        short = {tile: amx.Shape(self.height) for tile in (*_TOTALS, _ROWS[0])}
        amx.configure(self.config, {**short, **{tile: amx.Shape() for tile in _TURNS}})
        fetch = self._fetching(group * 2, groups * 2 - 1)
        with tir.serial(self.work.steps) as step:
            fetch(step)
            self._load_rows(_ROWS[0], step, 0)
            for c, tile in enumerate(_TURNS):
                self._load_weights(tile, step, c * LINE)
                self.work.dot(_TOTALS[c], _ROWS[0], tile)
        for c, tile in enumerate(_TOTALS):
            self._store(tile, 0, c, BLOCK)
        self._finish(0, BLOCK)

    def _load_weights(self, tile: int, step: Any, column: Any) -> None:
        amx.load(tile, self.source.at(self.place, step * STEP_ROWS, column), self.source.stride)

    def _load_rows(self, tile: int, step: Any, row: int) -> None:
        stored, first = (self.work.x, self.start) if self.copied is None else (self.copied, 0)
        address = tir.address_of(stored[first + row, step * self.work.step_channels])
        amx.load(tile, address, int(stored.shape[1]) * np.dtype(stored.dtype).itemsize)

    def _store(self, tile: int, row: int, vector: int, width: int) -> None:
        address = tir.address_of(self.sums[row * width + vector * LINE])
        amx.store(tile, address, 4 * width)

    def _finish(self, column: Any, width: int) -> None:
        """Emit the outputs of all rows, one by one, from the sums that tiles left."""
        place = replace(self.place, column=column, width=width)
        with tir.serial(self.height) as row:
            sums = Sums(self.sums, variable(row * width))
            self.finish.row(sums, row, self.start, place)

    def _fetching(self, turn: Any, turns: Any) -> Callable[[Any], None]:
        """The fetching, in each step of one of the ``turns`` over a block, of a part of the packed
        weights behind it: all turns fetch them once."""
        packed, steps = self.work.packed, max(1, self.work.steps)
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
