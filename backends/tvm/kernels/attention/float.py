"""The arithmetic of attention over pools of floats: float32, float16 and bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.operands import Operands, TileType, Words, widened
from optc.backends.tvm.kernels.dsl import bf16, half
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    Register,
    bind,
    fma,
    load,
    scratch,
    splat,
    store,
    wide,
)
from optc.backends.tvm.kernels.kv.pools import TILE, for_parts
from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.matmul_float import DOT_NAME


@dataclass(frozen=True)
class Float32:
    """One float32 a word."""

    query_planes: ClassVar[int] = 1
    weight_planes: ClassVar[int] = 1
    totals: ClassVar[str] = "float32"
    scaled: ClassVar[bool] = False
    integral: ClassVar[bool] = False
    by_tiles: ClassVar[TileType | None] = None

    def queries(self, values: Expr, vectors: Expr | int, room: int, dim: int) -> Operands:
        """The values themselves."""
        return Operands(values)

    def weights(self, room: int, tokens: int) -> Operands:
        """float32 [M, tokens]."""
        return Operands(scratch((room, tokens)))

    def put(self, weights: Operands, weight: Expr, m: Expr, token: Expr) -> Expr:
        """As they are."""
        store(weights.elements, weight, m, token)
        return weight

    def settle(
        self, weights: Operands, products: Expr, m: Expr, tiles: tuple[Expr, Expr], largest: Expr
    ) -> None:
        """Tokens have no scales."""

    def keys(self, pool: Expr, words: Words) -> tuple[Expr, ...]:
        """float32x16."""
        return self.values(pool, words, LANES)

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """float32x16."""
        return (bind(widened(load(pool, *words.at, words.first, lanes=lanes))),)

    def scales(self, pool: Expr, at: tuple[Expr, Expr], first: int) -> Expr:
        """Tokens have no scales."""
        raise NotImplementedError

    def kept(self, word: Expr, low: Expr, end: Expr) -> Expr | None:
        """A word is one token."""
        return None

    def operand(self, operands: Operands, m: Expr, plane: int, word: Expr) -> Expr:
        """float32x16."""
        return bind(splat(operands.elements[wide(m), wide(word)]))

    def dot(self, total: Register, words: tuple[Expr, ...], operand: Expr) -> None:
        """One fused multiply-add."""
        total.set(fma(words[0], operand, total.get()))

    def value(self, totals: list[Expr]) -> Expr:
        """The sum."""
        return totals[0]


@dataclass(frozen=True)
class Float16(Float32):
    """One float16 a word, which becomes a float32 (vcvtph2ps, fcvtl)."""

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """float32x16."""
        return (bind(widened(half.as_float(load(pool, *words.at, words.first, lanes=lanes)))),)


@dataclass(frozen=True)
class BFloat16:
    """Two bfloat16 a word."""

    isa: Isa
    query_planes: ClassVar[int] = 1
    weight_planes: ClassVar[int] = 1
    totals: ClassVar[str] = "float32"
    scaled: ClassVar[bool] = False
    integral: ClassVar[bool] = False

    @property
    def by_tiles(self) -> TileType | None:
        """On AMX, of any number of vectors: tiles round otherwise than vectors do, and
        a vector's bits are to be the same among any others. Values are multiplied where they lie,
        16 tokens at once, for one row alone would not repay their copying."""
        return TileType(amx.dot_bfloat16, 2, TILE, 1) if self.isa.amx else None

    def queries(self, values: Expr, vectors: Expr | int, room: int, dim: int) -> Operands:
        """Rounded to bfloat16."""
        out = scratch((room, dim), "uint16")
        with tir.serial(0, vectors) as m:

            def narrow(d: Expr, lanes: int) -> None:
                bits = bf16.round_bits(load(values, m, d, lanes=lanes))
                store(out, bf16.upper_half(bits), m, d)

            for_parts(dim, narrow)
        return Operands(out)

    def weights(self, room: int, tokens: int) -> Operands:
        """u16 [M, tokens]."""
        return Operands(scratch((room, tokens), "uint16"))

    def put(self, weights: Operands, weight: Expr, m: Expr, token: Expr) -> Expr:
        """Rounded to bfloat16; that is what is summed, too."""
        bits = bf16.round_bits(weight)
        store(weights.elements, bf16.upper_half(bits), m, token)
        return bind(bf16.as_float(bits))

    def settle(
        self, weights: Operands, products: Expr, m: Expr, tiles: tuple[Expr, Expr], largest: Expr
    ) -> None:
        """Tokens have no scales."""

    def keys(self, pool: Expr, words: Words) -> tuple[Expr, ...]:
        """u32x16, first element in the lower half."""
        return self.values(pool, words, LANES)

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """u32x16, first element in the lower half."""
        loaded = load(pool, *words.at, words.first * 2, lanes=2 * lanes)
        whole = widened(tir.reinterpret(loaded, dtype=f"uint32x{lanes}"))
        return (bind(whole if kept is None else whole & splat(kept)),)

    def scales(self, pool: Expr, at: tuple[Expr, Expr], first: int) -> Expr:
        """Tokens have no scales."""
        raise NotImplementedError

    def kept(self, word: Expr, low: Expr, end: Expr) -> Expr | None:
        """The bits of the tokens that are seen; the bits of others may be no number."""
        bits: Expr = tir.uint32(0)
        for odd, mask in enumerate((0xFFFF, 0xFFFF0000)):
            token = word * 2 + odd
            inside = tir.And(token >= low, token < end)
            bits = bits | tir.Select(inside, tir.uint32(mask), tir.uint32(0))
        return bind(bits)

    def operand(self, operands: Operands, m: Expr, plane: int, word: Expr) -> Expr:
        """u32x16."""
        two = tir.reinterpret(
            load(operands.elements, wide(m), wide(word) * 2, lanes=2), dtype="uint32"
        )
        return bind(splat(two))

    def dot(self, total: Register, words: tuple[Expr, ...], operand: Expr) -> None:
        """Two products a lane."""
        if self.isa.bf16:
            call = tir.call_pure_extern
            total.set(call(f"float32x{LANES}", DOT_NAME, total.get(), words[0], operand))
            return
        for part in (_lower, _upper):
            total.set(fma(part(words[0]), part(operand), total.get()))

    def value(self, totals: list[Expr]) -> Expr:
        """The sum."""
        return totals[0]


def _lower(words: Expr) -> Expr:
    """The first bfloat16 of each word as float32."""
    return bind(bf16.as_float(words << splat(16, "uint32")))


def _upper(words: Expr) -> Expr:
    """The second bfloat16 of each word as float32."""
    return bind(bf16.as_float(words & splat(0xFFFF0000, "uint32")))
