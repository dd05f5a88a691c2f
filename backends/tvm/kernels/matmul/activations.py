"""Activations as the tiles of integer matmuls read them: as they are, or interleaved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.dot import in_lanes, repeated
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH
from optc.backends.tvm.kernels.matmul.tiles import argument, local, store

#: Fours of input channels that a task interleaves.
FOURS = 256


@dataclass(frozen=True)
class QuantizedRows:
    """The operands of a matmul that are quantized activations.

    Attributes:
        q: int8 [T, Kp].
        scale: float32 [T].
        sums: int32 [T, Kp/32].
    """

    q: Any
    scale: Any
    sums: Any


def quantized_rows(rows: Any, channels: int) -> QuantizedRows:
    """Declare them as the next arguments ``xq``, ``xs`` and ``xsum``."""
    return QuantizedRows(
        argument("xq", (rows, channels), "int8"),
        argument("xs", (rows,), "float32"),
        argument("xsum", (rows, channels // SUM_WIDTH), "int32"),
    )


def group_sum(sums: Any, row: Any, group: Any, group_size: int) -> Any:
    """The sum of a row's activations over one group.

    Args:
        sums: int32 [T, Kp/32]: of each 32 of them.
        row: T.
        group: Which group.
        group_size: A multiple of 32.
    """
    parts, total_parts = group_size // SUM_WIDTH, int(sums.shape[1])
    if parts == 1:
        return tir.bind(sums[row, group])
    total = local(1, "int32")
    tir.buffer_store(total, tir.int32(0), [0])
    with tir.serial(tir.min(parts, total_parts - group * parts)) as i:
        tir.buffer_store(total, total[0] + sums[row, group * parts + i], [0])
    return tir.bind(total[0])


def row_sum(sums: Any, row: Any, lanes: int) -> Any:
    """The sum of a row's activations over all of K; ``sums`` int32 [T, Kp/32]: of each 32."""
    parts = int(sums.shape[1])
    wide, kind = parts // lanes, f"int32x{lanes}"
    total = local(1, "int32")
    tir.buffer_store(total, tir.int32(0), [0])
    if wide:
        vector = local(lanes, "int32")
        store(vector, sums.vload([row, 0], kind), [0], lanes)
        with tir.serial(wide - 1) as i:
            added = vector.vload([0], kind) + sums.vload([row, (i + 1) * lanes], kind)
            store(vector, added, [0], lanes)
        name = f"llvm.vector.reduce.add.v{lanes}i32"
        tir.buffer_store(
            total, tir.call_llvm_pure_intrin("int32", name, vector.vload([0], kind)), [0]
        )
    with tir.serial(parts - wide * lanes) as i:
        tir.buffer_store(total, total[0] + sums[row, wide * lanes + i], [0])
    return tir.bind(total[0])


class Activations(Protocol):
    """int8 activations of all rows."""

    def four(self, row: Any, k: Any) -> Any:
        """Those of a row from channel ``k`` on, s8, four of them in every lane."""
        ...


@dataclass(frozen=True)
class AsStored:
    """Row by row.

    Attributes:
        xq: int8 [T, Kp].
        lanes: float32 values of one vector register.
    """

    xq: Any
    lanes: int

    def four(self, row: Any, k: Any) -> Any:
        """From the row."""
        return repeated(self.xq, row, k, self.lanes)

    def pair(self, row: Any, other: Any, k: Any) -> Any:
        """Eight of a row from channel ``k`` on, then eight of another, s8x16."""
        low, high = (tir.bind(self.xq.vload([r, k], "int8x8")) for r in (row, other))
        return tir.bind(tir.vectorcombine("int8x16", low, high))


@dataclass(frozen=True)
class Interleaved:
    """Fours of input channels one after the other, of all rows each.

    Rows of some thousand channels lie a multiple of 4 KiB apart: of more rows than a set of the
    first-level cache has lines, each would push the others out.

    Attributes:
        buffer: int32 [at least Kp / 4 * T]: four int8 each.
        rows: T.
        lanes: float32 values of one vector register.
    """

    buffer: Any
    rows: Any
    lanes: int

    def four(self, row: Any, k: Any) -> Any:
        """From the four's rows."""
        return in_lanes(self.buffer[k // 4 * self.rows + row], self.lanes)


def interleave(xq: Any, rows: Any, most: int, lanes: int) -> Interleaved:
    """Emit the copy of int8 [T, Kp], T at most ``most``."""
    fours = int(xq.shape[1]) // 4
    buffer = tir.alloc_buffer((fours * most,), "int32")
    loop = tir.parallel if fours > FOURS else tir.serial
    with loop(-(-fours // FOURS)) as part, tir.serial(rows) as row:
        first = part * FOURS
        with tir.serial(tir.min(FOURS, fours - first)) as step:
            four = tir.reinterpret(xq.vload([row, (first + step) * 4], "int8x4"), dtype="int32")
            tir.buffer_store(buffer, four, [(first + step) * rows + row])
    return Interleaved(buffer, rows, lanes)
