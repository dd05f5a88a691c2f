"""Matmul of int8 activations, quantized per token, by int8 or int4 weights.

One kernel serves one row (a matrix-vector product at memory bandwidth), a few rows and hundreds.
Per channel, one int32 sum runs over all of K; with groups, each group's int32 sum is scaled and
added to a float32 in the order of the groups. Integer sums are exact on every instruction set, and
the float operations are the same everywhere, so results do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul_dot import DotOps, dot_ops
from optc.backends.tvm.kernels.matmul_tiles import (
    BLOCK,
    Operand,
    Place,
    Registers,
    argument,
    building,
    emit_tiles,
    fma,
    local,
    round_up,
    store_tile,
)
from optc.backends.tvm.kernels.matmul_weights import PackedWeights, Weights
from optc.backends.tvm.schedule import Schedule, default_schedule
from optc.errors import UnsupportedError

#: Activations whose sum is one value of xsum; K is padded to a multiple.
SUM_WIDTH = 32


@dataclass(frozen=True)
class IntMatmul:
    """Shape and weight format.

    Attributes:
        n: Output channels N.
        k: Input channels K, as the model has them.
        bits: 8 or 4.
        group_size: Input channels that share a scale; 0 is one float32 scale per channel.
        asymmetric: Zero points are an operand; else stored weights are value + 128 (or + 8).
        bias: A bias is an operand.
        schedule: How its work is cut up; None is the default of the instruction set.
    """

    n: int
    k: int
    bits: int = 8
    group_size: int = 0
    asymmetric: bool = False
    bias: bool = False
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.bits not in (4, 8) or self.group_size < 0 or self.group_size % SUM_WIDTH:
            raise UnsupportedError(
                f"no integer matmul for {self.bits} bits in groups of {self.group_size}",
                where="int_matmul",
                hint="bits 4 or 8; group_size 0 (per channel) or a multiple of 32",
            )

    @property
    def k_padded(self) -> int:
        """Kp: K rounded up to 32; activations there are 0."""
        return round_up(self.k, SUM_WIDTH)

    @property
    def blocks(self) -> int:
        """Blocks of 64 output channels."""
        return round_up(self.n, BLOCK) // BLOCK

    @property
    def groups(self) -> int:
        """G: scales of one output channel."""
        return -(-self.k // self.group_size) if self.group_size else 1

    def schedule_on(self, isa: Isa) -> Schedule:
        """The schedule it is built with."""
        return self.schedule or default_schedule(self.blocks, self.group_size, isa)

    def columns(self, rows: int, isa: Isa) -> int:
        """Columns of a register tile of ``rows`` rows."""
        limit = BLOCK // 2 if rows > self.schedule_on(isa).wide else BLOCK
        return min(isa.columns(rows), limit)

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        columns = (self.blocks, self.groups, BLOCK)
        packed = (self.blocks, self.k_padded * self.bits // 32, BLOCK, 4)
        operands: dict[str, Operand] = {"w": (packed, "uint8")}
        operands["ws"] = (columns, "float16" if self.group_size else "float32")
        if self.asymmetric:
            operands["wz"] = (columns, "uint8")
        if self.bias:
            operands["bias"] = ((self.n,), "float32")
        return operands

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config but for its schedule."""
        kind = f"_g{self.group_size}" if self.group_size else ""
        flags = ("_zp" if self.asymmetric else "") + ("_bias" if self.bias else "")
        return f"matmul_int{self.bits}{kind}{flags}_{self.n}x{self.k}"


@dataclass(frozen=True)
class IntTiles:
    """Emits register tiles; holds the operands.

    Attributes:
        config: The matmul, whose bits and offset are those of the vectors that ``source`` gives.
        isa: What the kernel is compiled for.
        ops: Its dot products.
        xq: int8 [T, Kp]: activations.
        xs: float32 [T]: their scales.
        xsum: int32 [T, Kp/32]: their sums.
        weights: Packed operands by name, as `IntMatmul.weights` says; ``w`` is not read from here.
        source: The weights.
        out: float32 [T, N].
    """

    config: IntMatmul
    isa: Isa
    ops: DotOps
    xq: Any
    xs: Any
    xsum: Any
    weights: dict[str, Any]
    source: Weights
    out: Any

    def emit(self, start: Any, rows: int, place: Place) -> None:
        """One tile of ``rows`` rows and a task's channels, in parts that fit into registers."""
        width = min(place.width, self.config.columns(rows, self.isa))
        if width == place.width:
            self._part(start, rows, place, place.column, width)
            return
        with tir.serial(place.width // width) as part:
            self._part(start, rows, place, tir.bind(place.column + part * width), width)

    def _part(self, start: Any, rows: int, place: Place, column: Any, width: int) -> None:
        lanes = self.isa.lanes
        sums = Registers(rows, width // lanes, lanes, "int32")
        result = Registers(rows, width // lanes, lanes, "float32")
        if self.config.group_size:
            for cell in result.cells():
                result[cell] = tir.broadcast(tir.float32(0), lanes)
            with tir.serial(self.config.groups) as group:
                self._sum(sums, start, place, group, column)
                scales = self._scales(place.block, group, column, width)
                for r, c in result.cells():
                    value = tir.cast(sums[r, c], f"float32x{lanes}")
                    result[r, c] = fma(value, scales[c], result[r, c], lanes)
        else:
            self._sum(sums, start, place, 0, column)
            scales = self._scales(place.block, 0, column, width)
            for r, c in result.cells():
                result[r, c] = tir.cast(sums[r, c], f"float32x{lanes}") * scales[c]
        self._finish(result, start, place.block, column)

    def _scales(self, block: Any, group: Any, column: Any, width: int) -> list[Any]:
        """The scales of the tile's columns as float32 vectors."""
        lanes = self.isa.lanes
        dtype = f"{'float16' if self.config.group_size else 'float32'}x{lanes}"
        loads = [
            self.weights["ws"].vload([block, group, column + c * lanes], dtype)
            for c in range(width // lanes)
        ]
        return [tir.bind(tir.cast(load, f"float32x{lanes}")) for load in loads]

    def _sum(self, sums: Registers, start: Any, place: Place, group: Any, column: Any) -> None:
        """Integer products of one group (of all of K per channel), less the zero points'."""
        self._start(sums, start, place.block, group, column)

        def use(k: Any, vectors: list[Any]) -> None:
            self._step(sums, start, k, [self.ops.prepare(vector) for vector in vectors])

        self.source.each_four(place, group, column, sums.vectors, use)

    def _start(self, sums: Registers, start: Any, block: Any, group: Any, column: Any) -> None:
        """Start the sums at minus zero point times the sum of the group's activations."""
        lanes = self.isa.lanes
        offset = tir.broadcast(tir.int32(self.ops.offset), lanes)
        zeros = []
        for c in range(sums.vectors):
            if self.config.asymmetric:
                place = [block, group, column + c * lanes]
                load = self.weights["wz"].vload(place, f"uint8x{lanes}")
                zeros.append(tir.bind(offset - tir.cast(load, f"int32x{lanes}")))
            else:
                symmetric = self.ops.offset - (1 << (self.config.bits - 1))
                zeros.append(tir.broadcast(tir.int32(symmetric), lanes))
        totals = [self._activation_sum(start + r, group) for r in range(len(sums.rows))]
        for r, c in sums.cells():
            sums[r, c] = zeros[c] * tir.broadcast(totals[r], lanes)

    def _activation_sum(self, row: Any, group: Any) -> Any:
        """The sum of a row's activations over one group (over all of K per channel)."""
        total_parts = self.config.k_padded // SUM_WIDTH
        parts = self.config.group_size // SUM_WIDTH
        if parts == 1:
            return tir.bind(self.xsum[row, group])
        total = local(1, "int32")
        tir.buffer_store(total, tir.int32(0), [0])
        if not parts:
            lanes = self.isa.lanes
            wide = total_parts // lanes
            with tir.serial(wide) as i:
                part = self.xsum.vload([row, i * lanes], f"int32x{lanes}")
                reduced = tir.call_llvm_pure_intrin(
                    "int32", f"llvm.vector.reduce.add.v{lanes}i32", part
                )
                tir.buffer_store(total, total[0] + reduced, [0])
            with tir.serial(total_parts - wide * lanes) as i:
                tir.buffer_store(total, total[0] + self.xsum[row, wide * lanes + i], [0])
        else:
            with tir.serial(tir.min(parts, total_parts - group * parts)) as i:
                tir.buffer_store(total, total[0] + self.xsum[row, group * parts + i], [0])
        return tir.bind(total[0])

    def _step(self, sums: Registers, start: Any, k: Any, weights: list[tuple[Any, ...]]) -> None:
        """Multiply four activations of every row by the weights of all columns."""
        lanes = self.isa.lanes
        for r in range(len(sums.rows)):
            four = tir.reinterpret(self.xq.vload([start + r, k], "int8x4"), dtype="int32")
            repeated = tir.broadcast(four, lanes)
            activations = tir.bind(tir.reinterpret(repeated, dtype=f"int8x{4 * lanes}"))
            for c, weight in enumerate(weights):
                sums[r, c] = self.ops.dot(sums[r, c], weight, activations)

    def _finish(self, result: Registers, start: Any, block: Any, column: Any) -> None:
        """Scale by the activations' scale, add the bias, write the tile out."""
        lanes = self.isa.lanes
        first = tir.bind(block * BLOCK + column)
        rows = range(len(result.rows))
        scales = [tir.bind(tir.broadcast(self.xs[start + r], lanes)) for r in rows]

        def value(r: int, c: int) -> Any:
            if not self.config.bias:
                return result[r, c] * scales[r]
            bias = self.weights["bias"].vload([first + c * lanes], f"float32x{lanes}")
            return fma(result[r, c], scales[r], bias, lanes)

        store_tile(self.out, start, first, result, value)


def int_matmul(config: IntMatmul, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, G groups):
        xq int8 [T, Kp]: quantized activations, within +-127, 0 beyond K.
        xs float32 [T]: their scales.
        xsum int32 [T, Kp/32]: sums of each 32 of them.
        w uint8 [B, Kp/4, 64, 4] (8 bits) or [B, Kp/8, 64, 4] (4 bits): packed weights.
        ws float32 [B, 1, 64] per channel, float16 [B, G, 64] with groups.
        wz uint8 [B, G, 64]: only if asymmetric.
        bias float32 [N]: only if ``bias``.
        out float32 [T, N].
    """
    kp = config.k_padded
    with building(config.name) as builder:
        rows = tir.int32()
        xq = argument("xq", (rows, kp), "int8")
        xs = argument("xs", (rows,), "float32")
        xsum = argument("xsum", (rows, kp // SUM_WIDTH), "int32")
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        ops = dot_ops(isa, config.bits)
        schedule = config.schedule_on(isa)
        fetch = bool(schedule.fetch)
        source = PackedWeights(weights["w"], config.bits, config.group_size, isa, fetch)
        tiles = IntTiles(config, isa, ops, xq, xs, xsum, weights, source, out)
        emit_tiles(rows, config.n, kp, schedule, tiles.emit)
    return builder.get()
