"""The arithmetic of attention over int4 pools: that of int8, of codes unpacked in registers.

A code q of a group with scale s and zero point z stands for the int8 s * (q - z)
(`optc.ir.functions.int4_groups`). Four codes, a byte each, are multiplied by s at once, for no
product of a byte is above 15 * 16; then 128 - s * z is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.int8 import Int8
from optc.backends.tvm.kernels.attention.operands import Words
from optc.backends.tvm.kernels.dsl import bf16
from optc.backends.tvm.kernels.dsl.script import LANES, Expr, bind, load, splat, wide
from optc.backends.tvm.kernels.kv.pools import TILE
from optc.runtime.executable.executable import INT4_GROUP

#: Rows of words of keys in a group: of four dimensions each.
_GROUP_ROWS = INT4_GROUP // 4


@dataclass(frozen=True)
class Int4(Int8):
    """Codes of 4 bits, and a byte for each token and group of dimensions.

    Attributes:
        key_dim: Dk, a multiple of 32.
        value_dim: Dv, a multiple of 32.
    """

    key_dim: int
    value_dim: int

    def keys(self, pool: Expr, words: Words) -> tuple[Expr, ...]:
        """The tokens are in lanes: all bytes of a lane have one scale."""
        group = bind(tir.cast(words.row, "int32") // _GROUP_ROWS)
        row = wide(group // 2 * _GROUP_ROWS + tir.cast(words.row, "int32") % _GROUP_ROWS)
        codes = _codes(pool, words.at, row * TILE, group % 2)
        start = wide(TILE * self.key_dim // 2) + wide(group) * TILE
        lanes = bind(tir.cast(load(pool, *words.at, start, lanes=TILE), f"int32x{LANES}"))
        scale = bind((lanes & _all(15)) + _all(1))
        offset = _all(128) - scale * (lanes >> _all(4))
        low = _as_words(codes) * _as_words(scale | (scale << _all(16)))
        return self.prepared(_added(low, offset * _all(0x01010101)))

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """The dimensions of one group are in lanes: each byte of a lane is a token's."""
        group = words.column // INT4_GROUP
        row = wide(words.row)
        codes = _codes(
            pool, words.at, row * (self.value_dim // 2) + group // 2 * LANES, tir.int32(group % 2)
        )
        start = wide(TILE * self.value_dim // 2 + group * TILE) + row * 4
        four = load(pool, *words.at, start, lanes=4)
        bytes_ = bind(splat(tir.reinterpret(four, dtype="int32")))
        scales = bind((bytes_ & _all(0x0F0F0F0F)) + _all(0x01010101))
        points = bind((bytes_ >> _all(4)) & _all(0x0F0F0F0F))
        low = _as_words(_even(codes)) * _as_words(_even(scales))
        high = _as_words(_odd(codes)) * _as_words(_odd(scales))
        below = _joined(
            _as_words(_even(points)) * _as_words(_even(scales)),
            _as_words(_odd(points)) * _as_words(_odd(scales)),
        )
        offset = _as_bytes(_all(0x80808080 - (1 << 32))) - _as_bytes(below)
        scaled = _as_bytes(_joined(low, high)) + offset
        return self.prepared(bind(tir.reinterpret(scaled, dtype=f"int32x{LANES}")))

    def scales(self, pool: Expr, at: tuple[Expr, Expr], first: int) -> Expr:
        """float32 of the tokens' bfloat16 scales, from element ``first`` on."""
        loaded = load(pool, *at, wide(first), lanes=2 * LANES)
        halves = tir.cast(tir.reinterpret(loaded, dtype=f"uint16x{LANES}"), f"uint32x{LANES}")
        return bind(bf16.as_float(halves << splat(16, "uint32")))


def _codes(pool: Expr, at: tuple[Expr, Expr], first: Expr, upper: Expr) -> Expr:
    """i32x16: four codes a lane, of a byte each: the lower or upper halves of bytes."""
    packed = tir.reinterpret(load(pool, *at, first * 4, lanes=4 * LANES), dtype=f"int32x{LANES}")
    shift = tir.cast(upper * 4, "int32")
    return bind((packed >> splat(shift)) & _all(0x0F0F0F0F))


def _all(number: int) -> Expr:
    return splat(number, "int32")


def _even(vector: Expr) -> Expr:
    """Bytes 0 and 2 of each lane, as two numbers of 16 bits."""
    return vector & _all(0x00FF00FF)


def _odd(vector: Expr) -> Expr:
    """Bytes 1 and 3."""
    return (vector >> _all(8)) & _all(0x00FF00FF)


def _joined(even: Expr, odd: Expr) -> Expr:
    """Bytes of numbers below 256 of 16 bits, i32x16."""
    low = tir.reinterpret(even, dtype=f"int32x{LANES}")
    high = tir.reinterpret(odd, dtype=f"int32x{LANES}")
    return bind(low | (high << _all(8)))


def _added(words: Expr, bytes_: Expr) -> Expr:
    """Bytes plus bytes, i32x16."""
    total = tir.reinterpret(words, dtype=f"uint8x{4 * LANES}") + _as_bytes(bytes_)
    return bind(tir.reinterpret(total, dtype=f"int32x{LANES}"))


def _as_words(vector: Expr) -> Expr:
    return tir.reinterpret(vector, dtype=f"int16x{2 * LANES}")


def _as_bytes(vector: Expr) -> Expr:
    return tir.reinterpret(vector, dtype=f"uint8x{4 * LANES}")
