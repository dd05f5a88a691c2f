"""Matmul of int8 activations by int8 weights per channel that are mostly zero.

What is not zero is stored, and a mask of where it belongs. Tiles of a few rows spread the values in
registers; at more rows a task spreads its block of channels once, into memory, and multiplies from
there, panel by panel of K. Behind that all is the matmul by dense int8 weights, whose bits it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.activations import AsStored, interleave
from optc.backends.tvm.kernels.matmul.int_tiles import IntTiles
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm.kernels.matmul.places import BLOCK, Panels, Place
from optc.backends.tvm.kernels.matmul.products import Dots
from optc.backends.tvm.kernels.matmul.schedule import Schedule, two_level_schedule
from optc.backends.tvm.kernels.matmul.sparse_values import BYTES, Expanded, SparseValues, expand
from optc.backends.tvm.kernels.matmul.tasks import Tall, TileEmitter, Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import argument, building
from optc.backends.tvm.kernels.matmul.weights import Weights
from optc.backends.tvm.weights.sparse_packing import SEGMENT, STEP, VECTORS, segments
from optc.errors import UnsupportedError

#: Rows of the tallest tile, which has the columns of one vector.
TALL_ROWS = 16
#: Rows up to which K is expanded in panels.
PANEL_ROWS = 32


@dataclass(frozen=True)
class SparseMatmul:
    """Shape.

    Attributes:
        n: Output channels N.
        k: Input channels K, as the model has them.
        bias: A bias is an operand.
        schedule: How its work is cut up; None is the default of the instruction set.
    """

    n: int
    k: int
    bias: bool = False
    schedule: Schedule | None = None

    @property
    def dense(self) -> IntMatmul:
        """The same matmul by dense weights."""
        return IntMatmul(self.n, self.k, bias=self.bias)

    def schedule_on(self, isa: Isa) -> Schedule:
        """The schedule it is built with.

        Tiles whose sums of 64 columns do not fit into registers have 32: the streams of the other
        columns are read apart from theirs, so that halves of a block cost memory nothing.
        """
        plain = two_level_schedule(self.dense.blocks, isa)
        return self.schedule or replace(plain, wide=isa.max_rows)

    @property
    def panels(self) -> Panels | None:
        """The way of tasks that expand through K: in panels from which the stored starts lead."""
        short = self.dense.k_padded <= SEGMENT
        return None if short else Panels(SEGMENT, PANEL_ROWS, whole=True)

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config but for its schedule."""
        return f"matmul_sparse{'_bias' * self.bias}_{self.n}x{self.k}"


def sparse_matmul(config: SparseMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T and V are dynamic.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, S = K/256 rounded up):
        xq int8 [T, Kp]: quantized activations, within +-127, 0 beyond K.
        xs float32 [T]: their scales.
        xsum int32 [T, Kp/32]: sums of each 32 of them.
        mask uint64 [B, Kp/4, 4], starts int64 [B, S, 4], values uint8 [V]: packed weights
            (`optc.backends.tvm.weights.sparse_packing`).
        ws float32 [B, 1, 64]: scales of the channels.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].

    Raises:
        UnsupportedError: The instruction set has none of the instructions.
    """
    if not isa.expands:
        raise UnsupportedError(
            f"no sparse matmul on {isa.name} without avx512_vbmi2",
            where="sparse_matmul",
            hint="store the weight dense",
        )
    dense, schedule = config.dense, config.schedule_on(isa)
    kp, lanes = dense.k_padded, isa.lanes
    with building(config.name) as builder:
        rows = tir.int32()
        xq = argument("xq", (rows, kp), "int8")
        xs = argument("xs", (rows,), "float32")
        xsum = argument("xsum", (rows, kp // SUM_WIDTH), "int32")
        values = SparseValues(
            argument("mask", (dense.blocks, kp // STEP, VECTORS), "uint64"),
            argument("starts", (dense.blocks, segments(config.k), VECTORS), "int64"),
            argument("values", (tir.int64(),), "uint8"),
        )
        others = {name: operand for name, operand in dense.weights.items() if name != "w"}
        weights = {name: argument(name, *operand) for name, operand in others.items()}
        out = argument("out", (rows, config.n), "float32")
        stored = AsStored(xq, lanes)

        def tiles(source: Weights, activations: Any, columns: int = BLOCK) -> TileEmitter:
            plain = replace(dense, schedule=schedule)
            products = Dots(source, isa, activations)
            return IntTiles(plain, isa, products, xs, xsum, weights, out, columns).emit

        def tall() -> TileEmitter:
            return tiles(values, interleave(xq, rows, TALL_ROWS, lanes), lanes)

        def prepare(task: Place) -> Callable[[Place], TileEmitter]:
            buffer = tir.alloc_buffer((kp // STEP, task.width // lanes, BYTES), "uint8")

            def emit(task: Place) -> TileEmitter:
                expand(values, buffer, task)
                return tiles(Expanded(buffer, task.column), stored)

            return emit

        work = Work(rows, config.n, kp, schedule, tiles(values, stored), prepare, config.panels)
        emit_tiles(replace(work, tall=Tall(TALL_ROWS, tall)))
    return builder.get()
