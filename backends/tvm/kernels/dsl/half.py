"""float16 (IEEE 754 binary16) as bits, in vectors of u16 lanes."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, bind, lanes_of, splat

#: The largest finite value.
LARGEST = 65504.0


def round_bits(value: Expr) -> Expr:
    """The bits of the nearest float16, ties to even; values beyond the largest one become it."""
    lanes = lanes_of(value)
    bound = splat(LARGEST, "float32", lanes)
    finite = bind(tir.max(tir.min(value, bound), -bound))
    return tir.reinterpret(tir.cast(finite, _of("float16", lanes)), dtype=_of("uint16", lanes))


def as_float(bits: Expr) -> Expr:
    """u16 lanes as the float32 values of the float16 whose bits they are."""
    lanes = lanes_of(bits)
    halves = tir.reinterpret(bits, dtype=_of("float16", lanes))
    return bind(tir.cast(halves, _of("float32", lanes)))


def _of(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"
