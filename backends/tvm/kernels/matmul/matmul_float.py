"""Matmul of float32 activations by float32 or bfloat16 weights.

float32 weights: one fused multiply-add for each k, in order. bfloat16 weights: activations are
rounded to bfloat16 (nearest, ties to even), products are exact. Where the instruction set has
vdpbf16ps, it adds pairs of products (denormal inputs and results count as zero); elsewhere each
product is added by itself in the order of k. The two differ in the last bits of float32; an engine
holds only one of them and is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.places import BLOCK, Place, fetch_ahead
from optc.backends.tvm.kernels.matmul.tasks import Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import (
    Operand,
    Registers,
    argument,
    building,
    fma,
    round_up,
    store,
    store_tile,
)
from optc.backends.tvm.tuning.schedule import Schedule
from optc.errors import UnsupportedError

#: Rows of the tallest tile where memory bounds, with 32 registers: one or two of its 28 sums leave
#: them for a while, which costs less than two tiles that read the weights twice.
LONE_ROWS = 7
#: Activations above which they are rounded to bfloat16 in parallel.
PARALLEL_ROUNDING = 1 << 16
#: The compiler turns bfloat16 operands of calls into float32 before it generates code, so
#: vdpbf16ps is called by a function of LLVM IR that takes words and is inlined.
DOT_NAME = "optc_dpbf16"
DOT_IR = f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
  <16 x float>, <32 x bfloat>, <32 x bfloat>)
define <16 x float> @{DOT_NAME}(<16 x float> %sum, <16 x i32> %a, <16 x i32> %b) #0 {{
  %x = bitcast <16 x i32> %a to <32 x bfloat>
  %y = bitcast <16 x i32> %b to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
    <16 x float> %sum, <32 x bfloat> %x, <32 x bfloat> %y)
  ret <16 x float> %r
}}
attributes #0 = {{ alwaysinline nounwind readnone }}
"""


@dataclass(frozen=True)
class FloatMatmul:
    """Shape and weight type.

    Attributes:
        n: Output channels N.
        k: Input channels K.
        weight_dtype: ``float32`` or ``bfloat16``.
        bias: A bias is an operand.
    """

    n: int
    k: int
    weight_dtype: str = "float32"
    bias: bool = False

    def __post_init__(self) -> None:
        if self.weight_dtype not in ("float32", "bfloat16"):
            raise UnsupportedError(
                f"no float matmul for weights of type {self.weight_dtype}",
                where="float_matmul",
                hint="float32 or bfloat16",
            )

    @property
    def blocks(self) -> int:
        """Blocks of 64 output channels."""
        return round_up(self.n, BLOCK) // BLOCK

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        if self.weight_dtype == "float32":
            operands: dict[str, Operand] = {"w": ((self.blocks, self.k, BLOCK), "float32")}
        else:
            operands = {"w": ((self.blocks, (self.k + 1) // 2, BLOCK, 2), "uint16")}
        if self.bias:
            operands["bias"] = ((self.n,), "float32")
        return operands

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config."""
        return f"matmul_{self.weight_dtype}{'_bias' if self.bias else ''}_{self.n}x{self.k}"


@dataclass(frozen=True)
class _Tiles:
    """Emits register tiles; holds the operands. ``step`` adds one step over K to a tile."""

    config: FloatMatmul
    isa: Isa
    w: Any
    bias: Any
    out: Any
    steps: int
    step: Callable[[Registers, Any, Any, Any, Any], None]

    def emit(self, start: Any, rows: int, place: Place) -> None:
        """One tile of ``rows`` rows and 64 channels, in parts that fit into registers."""
        width = self.isa.columns(rows)
        if width == BLOCK:
            self._part(start, rows, place, 0, width)
            return
        with tir.serial(BLOCK // width) as part:
            self._part(start, rows, place, part * width, width)

    def _part(self, start: Any, rows: int, place: Place, column: Any, width: int) -> None:
        lanes = self.isa.lanes
        sums = Registers(rows, width // lanes, lanes, "float32")
        for cell in sums.cells():
            sums[cell] = tir.broadcast(tir.float32(0), lanes)
        with tir.serial(self.steps) as index:
            fetch_ahead(self.w, place, index, column, width)
            self.step(sums, start, place.block, column, index)
        first = tir.bind(place.block * BLOCK + column)

        def value(r: int, c: int) -> Any:
            if not self.config.bias:
                return sums[r, c]
            return sums[r, c] + self.bias.vload([first + c * lanes], f"float32x{lanes}")

        store_tile(self.out, start, first, sums, value)


@dataclass(frozen=True)
class _Step:
    """Adds the products of one step over K; x float32 [T, K] or bfloat16 bits u16 [T, Kp]."""

    isa: Isa
    x: Any
    w: Any

    def float32(self, sums: Registers, start: Any, block: Any, column: Any, k: Any) -> None:
        """One k: a weight vector for each ``lanes`` columns."""
        lanes = self.isa.lanes
        weights = [
            tir.bind(self.w.vload([block, k, column + c * lanes], f"float32x{lanes}"))
            for c in range(sums.vectors)
        ]
        for r in range(len(sums.rows)):
            self._add(sums, r, self.x[start + r, k], weights)

    def widened(self, sums: Registers, start: Any, block: Any, column: Any, pair: Any) -> None:
        """Two k: a bfloat16 is the upper half of a float32."""
        lanes = self.isa.lanes
        words = self._words(block, pair, column, sums.vectors)
        for odd in (0, 1):
            weights = [tir.bind(_half(word, odd, lanes)) for word in words]
            for r in range(len(sums.rows)):
                bits = tir.cast(self.x[start + r, pair * 2 + odd], "uint32") << tir.uint32(16)
                self._add(sums, r, tir.reinterpret(bits, dtype="float32"), weights)

    def paired(self, sums: Registers, start: Any, block: Any, column: Any, pair: Any) -> None:
        """Two k in one vdpbf16ps."""
        lanes = self.isa.lanes
        weights = self._words(block, pair, column, sums.vectors)
        for r in range(len(sums.rows)):
            two = tir.reinterpret(self.x.vload([start + r, pair * 2], "uint16x2"), dtype="uint32")
            value = tir.bind(tir.broadcast(two, lanes))
            for c, weight in enumerate(weights):
                sums[r, c] = tir.call_pure_extern(
                    f"float32x{lanes}", DOT_NAME, sums[r, c], weight, value
                )

    def _words(self, block: Any, pair: Any, column: Any, count: int) -> list[Any]:
        """Two bfloat16 weights of each column in a u32 lane."""
        lanes = self.isa.lanes
        loads = [
            self.w.vload([block, pair, column + c * lanes, 0], f"uint16x{2 * lanes}")
            for c in range(count)
        ]
        return [tir.bind(tir.reinterpret(load, dtype=f"uint32x{lanes}")) for load in loads]

    def _add(self, sums: Registers, r: int, value: Any, weights: list[Any]) -> None:
        repeated = tir.bind(tir.broadcast(value, self.isa.lanes))
        for c, weight in enumerate(weights):
            sums[r, c] = fma(repeated, weight, sums[r, c], self.isa.lanes)


def _half(words: Any, odd: int, lanes: int) -> Any:
    """The lower (``odd`` 0) or upper bfloat16 of each u32 lane as float32."""
    if odd:
        bits = tir.bitwise_and(words, tir.broadcast(tir.uint32(0xFFFF0000), lanes))
    else:
        bits = tir.shift_left(words, tir.broadcast(tir.uint32(16), lanes))
    return tir.reinterpret(bits, dtype=f"float32x{lanes}")


def _rounded(x: Any, rows: Any, k: int, isa: Isa) -> Any:
    """Round x float32 [T, K] to bfloat16 bits u16 [T, K rounded up to a whole vector]."""
    lanes = isa.lanes
    width = round_up(k, 2 * lanes)
    rounded = tir.alloc_buffer((rows, width), "uint16")

    def vector(row: Any, column: Any) -> None:
        bits = tir.reinterpret(x.vload([row, column], f"float32x{lanes}"), dtype=f"uint32x{lanes}")
        store(rounded, tir.cast(_round(bits, lanes), f"uint16x{lanes}"), [row, column], lanes)

    def scalar(row: Any, column: Any) -> None:
        with tir.If(column < k):
            with tir.Then():
                bits = tir.reinterpret(x[row, column], dtype="uint32")
                tir.buffer_store(rounded, tir.cast(_round(bits, 1), "uint16"), [row, column])
            with tir.Else():
                tir.buffer_store(rounded, tir.uint16(0), [row, column])

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
    return rounded


def _round(bits: Any, lanes: int) -> Any:
    """Float32 bits to the nearest bfloat16's, ties to even (finite values), as u32."""

    def constant(value: int) -> Any:
        number = tir.uint32(value)
        return tir.broadcast(number, lanes) if lanes > 1 else number

    odd = tir.bitwise_and(tir.shift_right(bits, constant(16)), constant(1))
    return tir.shift_right(bits + constant(0x7FFF) + odd, constant(16))


def _schedule(isa: Isa, *, widened: bool) -> Schedule:
    """Weights that are widened take registers of their own."""
    if isa.lanes < 16 or widened:
        return Schedule(isa.max_rows)
    return Schedule(LONE_ROWS, isa.max_rows)


def float_matmul(config: FloatMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic.

    Buffers in order (B = N/64 rounded up):
        x float32 [T, K].
        w float32 [B, K, 64], or uint16 [B, K/2 rounded up, 64, 2], the bits of bfloat16.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].
    """
    n, k = config.n, config.k
    wide = config.weight_dtype == "float32"
    with building(config.name) as builder:
        rows = tir.int32()
        x = argument("x", (rows, k), "float32")
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, n), "float32")
        paired = isa.bf16 and not wide
        imported = tir.attr(0, "pragma_import_llvm", DOT_IR) if paired else nullcontext()
        step = _Step(isa, x if wide else _rounded(x, rows, k, isa), weights["w"])
        kind = step.float32 if wide else step.paired if paired else step.widened
        tiles = _Tiles(
            config, isa, weights["w"], weights.get("bias"), out, k if wide else (k + 1) // 2, kind
        )
        with imported:
            emit_tiles(Work(rows, n, k, _schedule(isa, widened=not (paired or wide)), tiles.emit))
    return builder.get()
