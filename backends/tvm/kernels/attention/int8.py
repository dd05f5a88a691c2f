"""The arithmetic of attention over int8 pools: exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.operands import (
    Operands,
    TileType,
    Words,
    combine,
    widened,
)
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    Register,
    absolute,
    bind,
    fma,
    intrinsic,
    lanes_of,
    load,
    register,
    round_even,
    scratch,
    splat,
    store,
    wide,
)
from optc.backends.tvm.kernels.dsl.vectors import load_part, reduce_row, store_part
from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.dot import dot_ops

#: Steps of an operand's largest value, by its planes: digits of 7 bits, the uppermost at most 127.
_STEPS = {1: 127, 2: 127 * 128}
#: Added to a float below 2**22, it leaves the nearest integer in the lowest bits.
_ROUNDING = 12582912.0
#: Operands whose largest value is below have units as though it were this, so that no quotient
#: overflows. They are as good as zero.
_LEAST = 1.0e-30
#: Of fewer vectors, memory bounds.
_LEAST_VECTORS = 16


@dataclass(frozen=True)
class Int8:
    """Four codes, value + 128, a word; queries of one or two digits of 7 bits, weights of two."""

    isa: Isa
    query_planes: int
    weight_planes: ClassVar[int] = 2
    totals: ClassVar[str] = "int32"
    scaled: ClassVar[bool] = True
    integral: ClassVar[bool] = True

    @property
    def by_tiles(self) -> TileType | None:
        """On AMX: sums are exact, so that vectors and tiles give the same bits."""
        return TileType(amx.dot_bytes, 1, amx.BYTES, _LEAST_VECTORS) if self.isa.amx else None

    def queries(self, values: Expr, vectors: Expr | int, room: int, dim: int) -> Operands:
        """In units of each vector's largest magnitude / 127, or / 16256 with two digits: -127..127
        and -64..63."""
        out = _new(room, self.query_planes, dim)
        with tir.serial(0, vectors) as m:
            largest = reduce_row(
                dim,
                0.0,
                lambda partial, d, n: partial.set(
                    tir.max(partial.get(), absolute(load_part(values, n, m, d)))
                ),
                tir.max,
            )
            steps = tir.float32(_STEPS[self.query_planes])
            unit = bind(tir.max(largest, tir.float32(_LEAST)) / steps)
            store(out.factor, unit, m)
            total = register(0, "int32")
            for d in range(0, dim, LANES):
                count = min(LANES, dim - d)
                ratio = load_part(values, count, m, d) / splat(unit)
                whole = bind(tir.cast(round_even(ratio), f"int32x{LANES}"))
                for plane, digit in enumerate(_signed_digits(whole, self.query_planes)):
                    digits = tir.cast(digit, f"int8x{LANES}")
                    store_part(out.elements, digits, count, m, plane, d)
                total.set(total.get() + whole)
            self._set_start(out, total, m)
        return out

    def weights(self, room: int, tokens: int) -> Operands:
        """Digits 0..127."""
        return _new(room, self.weight_planes, tokens)

    def put(self, weights: Operands, weight: Expr, m: Expr, token: Expr) -> Expr:
        """The weight as it is; `settle` stores all of them at once."""
        return weight

    def settle(
        self, weights: Operands, products: Expr, m: Expr, tiles: tuple[Expr, Expr], largest: Expr
    ) -> None:
        """In units of the largest product / 16256."""
        steps = tir.float32(_STEPS[self.weight_planes])
        unit = bind(tir.max(largest, tir.float32(_LEAST)) / steps)
        per_unit = bind(splat(tir.float32(1) / unit))
        total = register(0, "int32")
        with tir.serial(*tiles) as i:
            rounded = fma(load(products, m, i * LANES), per_unit, splat(_ROUNDING))
            bits = tir.reinterpret(rounded, dtype=f"int32x{LANES}")
            whole = bind(bits & splat((1 << 22) - 1, "int32"))
            digits = (whole >> splat(7, "int32"), whole & splat(127, "int32"))
            for plane, digit in enumerate(digits):
                store(weights.elements, tir.cast(digit, f"int8x{LANES}"), m, plane, i * LANES)
            total.set(total.get() + whole)
        store(weights.factor, unit, m)
        self._set_start(weights, total, m)

    def keys(self, pool: Expr, words: Words) -> tuple[Expr, ...]:
        """u8x64, as the instruction set's dot product takes them, in parts for fewer lanes."""
        return self.values(pool, words, LANES)

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """u8x64, as the instruction set's dot product takes them, in parts for fewer lanes."""
        loaded = load(pool, *words.at, words.first * 4, lanes=4 * lanes)
        return self.prepared(bind(widened(tir.reinterpret(loaded, dtype=f"int32x{lanes}"))))

    def scales(self, pool: Expr, at: tuple[Expr, Expr], first: int) -> Expr:
        """float32 scales of a tile's 16 tokens, from element ``first`` on."""
        last = load(pool, *at, wide(first), lanes=4 * LANES)
        return bind(tir.reinterpret(last, dtype=f"float32x{LANES}"))

    def prepared(self, whole: Expr) -> tuple[Expr, ...]:
        """Codes i32x16, four a lane, as the dot product takes them."""
        ops = dot_ops(self.isa)
        return tuple(
            prepared
            for part in self._parts(whole)
            for prepared in ops.prepare(bind(tir.reinterpret(part, dtype=_bytes(part, "uint8"))))
        )

    def kept(self, word: Expr, low: Expr, end: Expr) -> Expr | None:
        """Codes are integers."""
        return None

    def operand(self, operands: Operands, m: Expr, plane: int, word: Expr) -> Expr:
        """s8, four repeated in every lane."""
        four = load(operands.elements, wide(m), wide(plane), wide(word) * 4, lanes=4)
        lanes = self.isa.lanes
        repeated = tir.broadcast(tir.reinterpret(four, dtype="int32"), lanes)
        return bind(tir.reinterpret(repeated, dtype=f"int8x{4 * lanes}"))

    def dot(self, total: Register, words: tuple[Expr, ...], operand: Expr) -> None:
        """Four products a lane, exact."""
        ops = dot_ops(self.isa)
        parts = self._parts(total.get())
        each = len(words) // len(parts)
        sums = [
            ops.dot(part, words[i * each : (i + 1) * each], operand) for i, part in enumerate(parts)
        ]
        while len(sums) > 1:
            sums = [combine(*sums[i : i + 2]) for i in range(0, len(sums), 2)]
        total.set(sums[0])

    def value(self, totals: list[Expr]) -> Expr:
        """Upper digits count 128 times."""
        whole = totals[-1]
        if len(totals) == 2:
            whole = (totals[0] << splat(7, "int32")) + whole
        return bind(tir.cast(whole, f"float32x{LANES}"))

    def _set_start(self, operands: Operands, total: Register, m: Expr) -> None:
        """Codes have 128 too much, which counts as often as the operand's sum says."""
        excess = 128 - dot_ops(self.isa).offset
        whole = intrinsic("llvm.vector.reduce.add", "int32", total.get())
        store(operands.start, whole * -excess, m)

    def _parts(self, vector: Expr) -> list[Expr]:
        """A vector of 16 lanes in registers of the instruction set."""
        lanes = lanes_of(vector)
        if self.isa.lanes == lanes:
            return [vector]
        half = f"int32x{lanes // 2}"
        low, high = bind(tir.vectorlow(half, vector)), bind(tir.vectorhigh(half, vector))
        return [*self._parts(low), *self._parts(high)]


def _new(room: int, planes: int, count: int) -> Operands:
    return Operands(
        scratch((room, planes, count), "int8"),
        scratch((room,)),
        scratch((room,), "int32"),
    )


def _signed_digits(whole: Expr, planes: int) -> tuple[Expr, ...]:
    """The number itself, or two digits, -127..127 and -64..63."""
    if planes == 1:
        return (whole,)
    upper = bind((whole + splat(64, "int32")) >> splat(7, "int32"))
    return (upper, whole - (upper << splat(7, "int32")))


def _bytes(vector: Expr, dtype: str) -> str:
    return f"{dtype}x{4 * lanes_of(vector)}"
