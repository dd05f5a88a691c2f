"""Integer dot products of one vector register, for each instruction set.

All of them give the same exact int32: four products of a weight and an activation added to each
lane. `DotOps.offset` says which constant the products contain beyond the stored weight, so that
kernels subtract ``(zero_point - offset) * sum of activations`` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa


class DotOps(Protocol):
    """Products of unsigned stored weights and signed activations."""

    @property
    def offset(self) -> int:
        """``dot`` multiplies (stored weight - offset)."""
        ...

    def prepare(self, weights: Any) -> tuple[Any, ...]:
        """Compute once, from a vector of u8 weights, what is used for many rows."""
        ...

    def dot(self, total: Any, weights: tuple[Any, ...], activations: Any) -> Any:
        """``total + products``, int32; activations s8, four of them repeated in every lane."""
        ...


@dataclass(frozen=True)
class VnniDot:
    """vpdpbusd: u8 x s8, int32 sums, no saturation."""

    lanes: int
    offset: int = 0

    def prepare(self, weights: Any) -> tuple[Any, ...]:
        """The weights as they are."""
        return (weights,)

    def dot(self, total: Any, weights: tuple[Any, ...], activations: Any) -> Any:
        """One instruction."""
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        return _call("int32", self.lanes, name, total, weights[0], activations)


@dataclass(frozen=True)
class ByteDot:
    """vpmaddubsw of 8-bit weights by the sign trick.

    With s = w - 128 it multiplies |s| (unsigned, at most 128) by sign(s) * a (at least -127), so
    that a pair of products is within 2 * 128 * 127 = 32512 and never saturates.
    """

    lanes: int
    offset: int = 128

    def prepare(self, weights: Any) -> tuple[Any, ...]:
        """|s| and s; sign(s, s) is |s|, and 128 where s is -128, read as unsigned."""
        dtype = f"int8x{4 * self.lanes}"
        flip = tir.broadcast(tir.uint8(0x80), 4 * self.lanes)
        signed = tir.bind(tir.reinterpret(tir.bitwise_xor(weights, flip), dtype=dtype))
        return (tir.bind(self._sign(signed, signed)), signed)

    def dot(self, total: Any, weights: tuple[Any, ...], activations: Any) -> Any:
        """Move the weight's sign to the activation, then multiply."""
        magnitude, signed = weights
        return add_pairs(total, magnitude, self._sign(activations, signed), self.lanes)

    def _sign(self, value: Any, sign: Any) -> Any:
        return _call("int8", 4 * self.lanes, "llvm.x86.avx2.psign.b", value, sign)


@dataclass(frozen=True)
class NeonDot:
    """sdot: s8 x s8, int32 sums, exact. Bytes of weights become signed, unless all are below 128.

    Attributes:
        small: All weights are below 128.
    """

    small: bool = False

    @property
    def offset(self) -> int:
        """The offset that makes weights signed."""
        return 0 if self.small else 128

    def prepare(self, weights: Any) -> tuple[Any, ...]:
        """The weights as signed bytes."""
        if not self.small:
            weights = tir.bitwise_xor(weights, tir.broadcast(tir.uint8(0x80), 16))
        return (tir.bind(tir.reinterpret(weights, dtype="int8x16")),)

    def dot(self, total: Any, weights: tuple[Any, ...], activations: Any) -> Any:
        """One instruction."""
        return _call("int32", 4, "llvm.aarch64.neon.sdot.v4i32.v16i8", total, *weights, activations)


@dataclass(frozen=True)
class NeonMixedDot:
    """usdot of i8mm: u8 x s8, int32 sums, exact."""

    offset: int = 0

    def prepare(self, weights: Any) -> tuple[Any, ...]:
        """The weights as they are."""
        return (weights,)

    def dot(self, total: Any, weights: tuple[Any, ...], activations: Any) -> Any:
        """One instruction."""
        name = "llvm.aarch64.neon.usdot.v4i32.v16i8"
        return _call("int32", 4, name, total, *weights, activations)


def _call(dtype: str, lanes: int, name: str, *operands: Any) -> Any:
    return tir.call_llvm_pure_intrin(f"{dtype}x{lanes}", name, *operands)


def repeated(xq: Any, row: Any, k: Any, lanes: int) -> Any:
    """Four activations of a row from channel k on, s8, in every lane."""
    return in_lanes(tir.reinterpret(xq.vload([row, k], "int8x4"), dtype="int32"), lanes)


def in_lanes(four: Any, lanes: int) -> Any:
    """Four s8 of an int32 in every lane."""
    return tir.bind(tir.reinterpret(tir.broadcast(four, lanes), dtype=f"int8x{4 * lanes}"))


def multiply_bytes(unsigned: Any, signed: Any, lanes: int) -> Any:
    """int16: products of u8 and s8, added in pairs, with saturation (vpmaddubsw of AVX2)."""
    return _call("int16", 2 * lanes, "llvm.x86.avx2.pmadd.ub.sw", unsigned, signed)


def add_words(total: Any, one: Any, other: Any, lanes: int) -> Any:
    """``total`` plus the products of int16, added in pairs, int32 (vpmaddwd of AVX2)."""
    return total + _call("int32", lanes, "llvm.x86.avx2.pmadd.wd", one, other)


def add_pairs(total: Any, unsigned: Any, signed: Any, lanes: int) -> Any:
    """``total`` plus the products of u8 and s8, added in fours; pairs of them with saturation."""
    ones = tir.broadcast(tir.int16(1), 2 * lanes)
    return add_words(total, multiply_bytes(unsigned, signed, lanes), ones, lanes)


def dot_ops(isa: Isa, bits: int = 8) -> DotOps:
    """The dot product of bytes on ``isa``, of which those of weights are below 2 ** ``bits``."""
    if isa.arm:
        return NeonMixedDot() if isa.i8mm else NeonDot(bits < 8)
    return VnniDot(isa.lanes) if isa.vnni else ByteDot(isa.lanes)
