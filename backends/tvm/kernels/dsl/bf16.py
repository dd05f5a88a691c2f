"""bfloat16 as bits, in vectors of float32 lanes."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, bind, lanes_of, splat


def round_bits(value: Expr) -> Expr:
    """The bits of the nearest bfloat16, ties to even, in the upper half of u32 lanes; finite
    values stay finite or become infinite, the lower half is zero."""
    lanes = lanes_of(value)

    def constant(number: int) -> Expr:
        return splat(number, "uint32", lanes)

    dtype = "uint32" if lanes == 1 else f"uint32x{lanes}"
    bits = bind(tir.reinterpret(value, dtype=dtype))
    odd = (bits >> constant(16)) & constant(1)
    return bind((bits + constant(0x7FFF) + odd) & constant(0xFFFF0000))


def upper_half(bits: Expr) -> Expr:
    """u32 lanes that `round_bits` gave, as u16 lanes."""
    lanes = lanes_of(bits)
    dtype = "uint16" if lanes == 1 else f"uint16x{lanes}"
    return tir.cast(bits >> splat(16, "uint32", lanes), dtype)


def as_float(bits: Expr) -> Expr:
    """u32 lanes as the float32 values whose bits they are."""
    lanes = lanes_of(bits)
    return tir.reinterpret(bits, dtype="float32" if lanes == 1 else f"float32x{lanes}")
