"""Matmul of float32 activations by float32 or bfloat16 weights.

float32 weights: one fused multiply-add for each k, in order. bfloat16 weights: activations are
rounded to bfloat16 (nearest, ties to even), products are exact. Where the instruction set has
vdpbf16ps, it adds pairs of products (denormal inputs and results count as zero); where it has
tiles of AMX, they add 32 at once; elsewhere each product is added by itself in the order of k. They
differ in the last bits of float32; an engine holds only one of them and is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.amx.float_groups import STEP, AmxFloatTiles
from optc.backends.tvm.kernels.matmul.amx.groups import Sums
from optc.backends.tvm.kernels.matmul.bf16_rows import rounded
from optc.backends.tvm.kernels.matmul.places import BLOCK, Place, fetch_ahead
from optc.backends.tvm.kernels.matmul.schedule import Schedule
from optc.backends.tvm.kernels.matmul.tasks import Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import (
    Operand,
    Registers,
    RowsAt,
    TileRows,
    argument,
    building,
    fma,
    in_order,
    round_up,
    store_tile,
)
from optc.errors import UnsupportedError

#: Rows of the tallest tile where memory bounds, with 32 registers: one or two of its 28 sums leave
#: them for a while, which costs less than two tiles that read the weights twice.
LONE_ROWS = 7
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
    step: Callable[[Registers, Sequence[Any], Any, Any, Any], None]
    rows_at: RowsAt = in_order

    def emit(self, start: Any, rows: int, place: Place) -> None:
        """One tile of ``rows`` rows and 64 channels, in parts that fit into registers."""
        width, at = self.isa.columns(rows), self.rows_at(start, rows)
        if width == BLOCK:
            self._part(at, place, 0, width)
            return
        with tir.serial(BLOCK // width) as part:
            self._part(at, place, part * width, width)

    def _part(self, at: TileRows, place: Place, column: Any, width: int) -> None:
        lanes = self.isa.lanes
        sums = Registers(len(at.read), width // lanes, lanes, "float32")
        for cell in sums.cells():
            sums[cell] = tir.broadcast(tir.float32(0), lanes)
        with tir.serial(self.steps) as index:
            fetch_ahead(self.w, place, index, column, width)
            self.step(sums, at.read, place.block, column, index)
        self._write(sums, at, place, column)

    def write_tiled(self, tiled: Sums, row: Any, place: Place) -> None:
        """Write a row whose products tiles of AMX have added, all but those behind their steps."""
        lanes, at = self.isa.lanes, self.rows_at(row, 1)
        sums = Registers(1, place.width // lanes, lanes, "float32")
        for c in range(sums.vectors):
            sums[0, c] = tiled.vector(c, lanes)
        begin = self.config.k // STEP * (STEP // 2)
        with tir.serial(self.steps - begin) as index:
            self.step(sums, at.read, place.block, place.column, tir.bind(begin + index))
        self._write(sums, at, place, place.column)

    def _write(self, sums: Registers, at: TileRows, place: Place, column: Any) -> None:
        """Add the bias and write the tile out."""
        lanes = self.isa.lanes
        first = tir.bind(place.block * BLOCK + column)

        def value(r: int, c: int) -> Any:
            if not self.config.bias:
                return sums[r, c]
            return sums[r, c] + self.bias.vload([first + c * lanes], f"float32x{lanes}")

        store_tile(self.out, at.write, place.output(first), sums, value)


@dataclass(frozen=True)
class _Step:
    """Adds the products of one step over K; x float32 [T, K] or bfloat16 bits u16 [T, Kp]."""

    isa: Isa
    x: Any
    w: Any

    def float32(
        self, sums: Registers, rows: Sequence[Any], block: Any, column: Any, k: Any
    ) -> None:
        """One k: a weight vector for each ``lanes`` columns."""
        lanes = self.isa.lanes
        weights = [
            tir.bind(self.w.vload([block, k, column + c * lanes], f"float32x{lanes}"))
            for c in range(sums.vectors)
        ]
        for r, row in enumerate(rows):
            self._add(sums, r, self.x[row, k], weights)

    def widened(
        self, sums: Registers, rows: Sequence[Any], block: Any, column: Any, pair: Any
    ) -> None:
        """Two k: a bfloat16 is the upper half of a float32."""
        lanes = self.isa.lanes
        words = self._words(block, pair, column, sums.vectors)
        for odd in (0, 1):
            weights = [tir.bind(_half(word, odd, lanes)) for word in words]
            for r, row in enumerate(rows):
                bits = tir.cast(self.x[row, pair * 2 + odd], "uint32") << tir.uint32(16)
                self._add(sums, r, tir.reinterpret(bits, dtype="float32"), weights)

    def paired(
        self, sums: Registers, rows: Sequence[Any], block: Any, column: Any, pair: Any
    ) -> None:
        """Two k in one vdpbf16ps."""
        lanes = self.isa.lanes
        weights = self._words(block, pair, column, sums.vectors)
        for r, row in enumerate(rows):
            two = tir.reinterpret(self.x.vload([row, pair * 2], "uint16x2"), dtype="uint32")
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
    with building(config.name) as builder:
        rows = tir.int32()
        x = argument("x", (rows, config.k), "float32")
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        with float_work(config, isa, rows, x, weights, out) as work:
            emit_tiles(work)
    return builder.get()


@contextmanager
def float_work(
    config: FloatMatmul,
    isa: Isa,
    rows: Any,
    x: Any,
    weights: dict[str, Any],
    out: Any,
    rows_at: RowsAt = in_order,
) -> Iterator[Work]:
    """The products of the kernel's operands; bfloat16 activations are rounded first."""
    k, wide = config.k, config.weight_dtype == "float32"
    paired = isa.bf16 and not wide
    imported = tir.attr(0, "pragma_import_llvm", DOT_IR) if paired else nullcontext()
    read = x if wide else rounded(x, rows, k, isa)
    step = _Step(isa, read, weights["w"])
    kind = step.float32 if wide else step.paired if paired else step.widened
    steps, bias = k if wide else (k + 1) // 2, weights.get("bias")
    tiles = _Tiles(config, isa, weights["w"], bias, out, steps, kind, rows_at)
    with imported:
        schedule = _schedule(isa, widened=not (paired or wide))
        work = Work(rows, config.n, k, schedule, tiles.emit)
        if paired and isa.amx:
            tiled = AmxFloatTiles(read, weights["w"], k, rows_at, tiles.write_tiled)
            work = replace(work, cover=tiled.cover())
        yield work
