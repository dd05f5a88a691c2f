"""Activations rounded to bfloat16, for the matmuls that multiply that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.tiles import round_up, store

#: Activations above which they are rounded to bfloat16 in parallel.
PARALLEL_ROUNDING = 1 << 16


def rounded(x: Any, rows: Any, k: int, isa: Isa) -> Any:
    """Round x float32 [T, K] to bfloat16 bits u16 [T, K rounded up to a whole vector]."""
    lanes = isa.lanes
    width = round_up(k, 2 * lanes)
    out = tir.alloc_buffer((rows, width), "uint16")

    def vector(row: Any, column: Any) -> None:
        bits = tir.reinterpret(x.vload([row, column], f"float32x{lanes}"), dtype=f"uint32x{lanes}")
        store(out, tir.cast(_round(bits, lanes), f"uint16x{lanes}"), [row, column], lanes)

    def scalar(row: Any, column: Any) -> None:
        with tir.If(column < k):
            with tir.Then():
                bits = tir.reinterpret(x[row, column], dtype="uint32")
                tir.buffer_store(out, tir.cast(_round(bits, 1), "uint16"), [row, column])
            with tir.Else():
                tir.buffer_store(out, tir.uint16(0), [row, column])

    def all_rows(loop: Callable[[Any], Any]) -> None:
        whole = k // lanes * lanes
        with loop(rows) as row:
            with tir.serial(whole // lanes) as index:
                vector(row, index * lanes)
            with tir.serial(width - whole) as index:
                scalar(row, whole + index)

    with tir.If(rows * k > PARALLEL_ROUNDING):
        with tir.Then():
            all_rows(tir.parallel)
        with tir.Else():
            all_rows(tir.serial)
    return out


def _round(bits: Any, lanes: int) -> Any:
    """Float32 bits to the nearest bfloat16's, ties to even (finite values), as u32."""

    def constant(value: int) -> Any:
        number = tir.uint32(value)
        return tir.broadcast(number, lanes) if lanes > 1 else number

    odd = tir.bitwise_and(tir.shift_right(bits, constant(16)), constant(1))
    return tir.shift_right(bits + constant(0x7FFF) + odd, constant(16))
