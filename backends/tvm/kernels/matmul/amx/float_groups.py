"""Tiles of AMX for the matmuls that multiply bfloat16, at any number of rows.

A product of tiles adds even and odd channels of a step apart, and rounds as vectors do not. So that
a row has the same bits whatever rows it is with, a single row is multiplied by tiles, too: weights
come from memory more slowly than a tile of one row takes them. Channels beyond the last whole step
of 32 are added by vectors, in every row alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.amx.groups import CHUNK_ROWS, GROUP, Groups, Sums
from optc.backends.tvm.kernels.matmul.amx.sources import Packed
from optc.backends.tvm.kernels.matmul.places import Place
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.tasks import Cover, Span
from optc.backends.tvm.kernels.matmul.tiles import RowsAt

#: Input channels of a step.
STEP = amx.BYTES // 2


@dataclass(frozen=True)
class _Written:
    """Writes the sums of a task's rows."""

    write: Callable[[Sums, Any, Place], None]

    def start(self, start: Any, height: Any) -> None:
        """Nothing comes before a group."""

    def row(self, sums: Sums, row: Any, start: Any, place: Place) -> None:
        """A row of the task."""
        self.write(sums, start + row, place)


@dataclass(frozen=True)
class AmxFloatTiles:
    """The rows of a task by tiles; holds the operands.

    Attributes:
        x: Activations u16 [T, K rounded up to 32], the bits of bfloat16.
        w: Packed weights u16 [B, K/2 rounded up, 64, 2].
        k: Input channels K.
        rows_at: Where rows lie.
        write: ``write(sums, row, place)`` adds what lies beyond the last whole step, and writes a
            row of the task.
    """

    x: Any
    w: Any
    k: int
    rows_at: RowsAt
    write: Callable[[Sums, Any, Place], None]

    def emit(self, span: Span, rooms: Rooms) -> None:
        """All rows of one task, whose memory is of ``rooms``."""
        steps = self.k // STEP
        groups = Groups(amx.dot_bfloat16, "float32", self.x, steps, self.rows_at, self.w)
        groups.emit(span, rooms, Packed(self.w), _Written(self.write))

    def cover(self) -> Cover:
        """These as the way of all rows."""
        return Cover(1, CHUNK_ROWS, GROUP, self.emit)
