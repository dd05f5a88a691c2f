"""`optc.runtime.sampling.sampler_math` and the Gumbel noise of `optc.runtime.sampling.noise` in
TIR, bit for bit.

LLVM would contract a product and a sum into one rounding where NumPy has two; every product that
feeds a sum is fenced against it.
"""

from __future__ import annotations

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    bind,
    intrinsic,
    lanes_of,
    register,
    round_even,
    splat,
)
from optc.runtime.sampling import sampler_math as shared

#: Adding it to a float64 below 2**51 in magnitude leaves the rounded integer in the low bits.
_ROUNDER = float(3 << 51)
_MANTISSA_BITS = 52
_EXPONENT_BIAS = 1023
_MANTISSA_MASK = (1 << _MANTISSA_BITS) - 1


def f64(value: float, lanes: int = 1) -> Expr:
    """A float64 constant."""
    return splat(value, "float64", lanes)


def i64(value: int, lanes: int = 1) -> Expr:
    """An int64 constant."""
    return splat(value, "int64", lanes)


def word(value: int) -> Expr:
    """A uint64 constant."""
    return tvm.tirx.const(value, "uint64")


def _typed(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"{kind}x{lanes}"


def fenced(value: Expr) -> Expr:
    """``value``, rounded before anything else is done with it."""
    return bind(intrinsic("llvm.arithmetic.fence", str(value.ty.dtype), value))


def kept(value: Expr) -> Expr:
    """``value`` in a register: TVM's analysis would expand a `bind` at each of its many uses, and
    in theirs, which grows exponentially."""
    lanes = lanes_of(value)
    return bind(register(value, str(value.ty.dtype).split("x")[0], lanes).get())


def as_integer(value: Expr) -> Expr:
    """An integral float64 below 2**51 in magnitude as int64."""
    lanes = lanes_of(value)
    bits = tir.reinterpret(value + f64(_ROUNDER, lanes), dtype=_typed("int64", lanes))
    rounder = tir.reinterpret(f64(_ROUNDER, lanes), dtype=_typed("int64", lanes))
    return kept(bits - rounder)


def power_of_two(exponent: Expr) -> Expr:
    """2**exponent as float64, for an int64 that makes it normal."""
    lanes = lanes_of(exponent)
    bits = (exponent + i64(_EXPONENT_BIAS, lanes)) << i64(_MANTISSA_BITS, lanes)
    return tir.reinterpret(bits, dtype=_typed("float64", lanes))


def distance(logits: Expr, largest: Expr, temperature: Expr) -> Expr:
    """Distances of float32 logits from a float32 scalar, as float64."""
    lanes = lanes_of(logits)
    wide = tir.cast(logits, _typed("float64", lanes))
    top = splat(tir.cast(largest, "float64"), "float64", lanes)
    below = tir.Select(wide < top, top - wide, f64(0.0, lanes))
    quotient = below / splat(temperature, "float64", lanes)
    return kept(tir.min(quotient, f64(shared.HELD, lanes)))


def mass(far: Expr) -> Expr:
    """Masses (int64) of distances."""
    lanes = lanes_of(far)
    x = kept(f64(0.0, lanes) - tir.min(far, f64(shared.FARTHEST, lanes)))
    exponent = kept(round_even(x * f64(shared.LOG2_E, lanes)))
    r = kept(
        (x - fenced(exponent * f64(shared.LN2_HIGH, lanes)))
        - fenced(exponent * f64(shared.LN2_LOW, lanes))
    )
    mantissa = f64(shared.EXP[-1], lanes)
    for coefficient in shared.EXP[-2::-1]:
        mantissa = fenced(mantissa * r) + f64(coefficient, lanes)
    scale = power_of_two(as_integer(exponent) + i64(shared.MASS_BITS, lanes))
    return as_integer(round_even(bind(mantissa * scale)))


def log(x: Expr) -> Expr:
    """Natural logarithm of a positive normal float64 scalar."""
    bits = kept(tir.reinterpret(x, dtype="int64"))
    exponent = bind((bits >> i64(_MANTISSA_BITS)) - i64(_EXPONENT_BIAS - 1))
    half = i64((_EXPONENT_BIAS - 1) << _MANTISSA_BITS)
    mantissa = bind(tir.reinterpret((bits & i64(_MANTISSA_MASK)) | half, dtype="float64"))
    low = bind(mantissa < f64(shared.SQRT_HALF))
    mantissa = kept(tir.Select(low, mantissa + mantissa, mantissa))
    power = kept(tir.cast(tir.Select(low, exponent - i64(1), exponent), "float64"))
    s = kept((mantissa - f64(1.0)) / (mantissa + f64(1.0)))
    square = kept(fenced(s * s))
    series = f64(shared.LOG[-1])
    for coefficient in shared.LOG[-2::-1]:
        series = fenced(series * square) + f64(coefficient)
    tail = fenced(power * f64(shared.LN2_LOW)) + fenced(fenced(series * square) * s)
    return kept(fenced(power * f64(shared.LN2_HIGH)) + ((s + s) + tail))


def gumbel(drawn: Expr) -> Expr:
    """The Gumbel value of a random word (uint64)."""
    one = word(_EXPONENT_BIAS << _MANTISSA_BITS)
    bits = (drawn >> word(64 - _MANTISSA_BITS)) | one
    uniform = (tir.reinterpret(bits, dtype="float64") - f64(1.0)) + f64(2.0**-53)
    inner = log(uniform)
    return bind(f64(0.0) - log(f64(0.0) - inner))
