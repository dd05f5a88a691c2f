"""Tiles of AMX for the matmuls that multiply integers: their sums, as tiles of vectors take them.

Sums are exact, so that results have the bits of vectors' products. Channels beyond the last whole
step of 64, 32 or none, are added to them in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import AsStored, QuantizedRows, row_sum
from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.amx.groups import CHUNK_ROWS, GROUP, STEP_ROWS, Groups, Sums
from optc.backends.tvm.kernels.matmul.amx.sources import Source
from optc.backends.tvm.kernels.matmul.dot import dot_ops
from optc.backends.tvm.kernels.matmul.places import Place
from optc.backends.tvm.kernels.matmul.products import Products
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.tasks import Cover, Span, TileEmitter
from optc.backends.tvm.kernels.matmul.tiles import Registers, RowsAt

#: Input channels of a step.
STEP = amx.BYTES
#: Least rows that are multiplied so: of fewer, memory bounds, and one row's code stays as it is.
LEAST_ROWS = 8


#: ``finish(products, total)`` emits tiles of rows whose activations have that total over all of K.
Finish = Callable[[Products, Callable[[Any], Any]], TileEmitter]


@dataclass(frozen=True)
class FromTiles:
    """The products of one row that tiles left in memory, as a tile of vectors takes them.

    Attributes:
        sums: The row's.
        source: The weights, for channels beyond the last whole step.
        x: The activations.
        isa: What the kernel is compiled for.
        offset: ``add`` multiplies (stored weight - offset).
    """

    sums: Sums
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
            sums[0, c] = sums[0, c] + self.sums.vector(c, lanes)
        ops, activations = dot_ops(self.isa), AsStored(self.x.q, lanes)
        rest = channels % STEP // 4
        with tir.serial(rest) as index:
            four = tir.bind(channels // STEP * STEP_ROWS + index)
            of_row = activations.four(rows[0], four * 4)
            for c, vector in enumerate(self.source.vectors(place, four, column, sums.vectors)):
                sums[0, c] = ops.dot(sums[0, c], ops.prepare(vector), of_row)


@dataclass(frozen=True)
class _Scaled:
    """Scales the sums of a task's rows and writes them out.

    Attributes:
        work: Has the operands.
        source: The task's weights.
        totals: int32 [GROUP]: the sums of each row's activations.
    """

    work: AmxTiles
    source: Source
    totals: Any

    def start(self, start: Any, height: Any) -> None:
        """The sums of the group's activations."""
        work = self.work
        with tir.serial(height) as row:
            read = work.rows_at(start + row, 1).read[0]
            tir.buffer_store(self.totals, row_sum(work.x.sums, read, work.isa.lanes), [row])

    def row(self, sums: Sums, row: Any, start: Any, place: Place) -> None:
        """A row of one."""
        work = self.work
        products = FromTiles(sums, self.source, work.x, work.isa)
        work.finish(products, lambda _: self.totals[row])(start + row, 1, place)


@dataclass(frozen=True)
class AmxTiles:
    """The rows of a task by tiles; holds the operands.

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
        source, steps = self.source(span.place, rooms), int(self.x.q.shape[1]) // STEP
        groups = Groups(amx.dot_bytes, "int32", self.x.q, steps, self.rows_at, self.packed)
        totals = rooms.take((GROUP,), "int32")
        groups.emit(span, rooms, source, _Scaled(self, source, totals))

    def cover(self, chunk: int = CHUNK_ROWS) -> Cover:
        """These as the way of tasks of so many rows at least."""
        return Cover(LEAST_ROWS, chunk, GROUP, self.emit)
