"""exp, tanh, erf and the activations made of them, on float32 vectors, in the same few operations
on every instruction set.

The polynomials are weighted minimax fits of this project; the comments give the error of the fit,
and the tests that of the float32 evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    absolute,
    fma,
    hold,
    intrinsic,
    lanes_of,
    like,
    round_even,
    splat,
)
from optc.errors import UnsupportedError

LOG2_E = 1.4426950408889634
#: ln 2 in two parts; the first has 15 trailing zero bits, so its product with n is exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
#: Below, exp is zero; above the other bound it would not be finite.
_EXP_LOWEST = -87.33654
_EXP_HIGHEST = 88.37626
#: Added to a float below 2**22, it leaves the nearest integer in the lowest bits.
_ROUNDING = 12582912.0
#: (exp(r) - 1 - r) / r**2 for abs(r) <= ln(2)/2, relative error of exp 5e-11.
_EXP = (0.5, 0.16666667, 0.04166627, 0.0083332658, 0.0013946086, 0.00019917832)
#: (2**r - 1) / r for abs(r) <= 1/2, relative error of 2**r 1.1e-7.
_EXP2 = (0.693147, 0.24022242, 0.055507336, 0.009671513, 0.0013264727)
#: (tanh(x) / x - 1) / x**2 in x**2 for abs(x) <= 0.625, relative error of tanh 4e-9.
_TANH = (-0.33333284, 0.13331491, -0.053743497, 0.020650579, -0.0057170370)
#: erf(x) / x in x**2 for abs(x) <= 1, relative error 1e-9.
_ERF = (
    1.1283791,
    -0.37612626,
    0.11283600,
    -0.026854444,
    0.0051895352,
    -0.00080208411,
    7.8891173e-05,
)
#: -ln(1 - erf(x)) for 1 <= x <= 4, absolute error of erf 1e-9.
_ERFC = (
    0.00035370892,
    1.1270400,
    0.63822562,
    0.10303743,
    -0.021805352,
    0.0029396156,
    -0.00018557490,
)
_SQRT_2_OVER_PI = 0.7978845608028654
_SQRT_HALF = 0.7071067811865476


def polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """``sum(c[i] * x**i)`` by Horner's rule with fused multiply-adds."""
    total = like(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = fma(total, x, like(coefficient, x))
    return hold(total)


def exp(value: Expr) -> Expr:
    """exp(x), relative error below 1.5e-7; 0 below -87.3, and held at exp(88.37) above."""
    x = hold(value)
    held = hold(tir.max(tir.min(x, like(_EXP_HIGHEST, x)), like(_EXP_LOWEST, x)))
    n = hold(round_even(held * like(LOG2_E, x)))
    r = hold(fma(n, like(-_LN2_LOW, x), fma(n, like(-_LN2_HIGH, x), held)))
    mantissa = fma(hold(r * r), polynomial(_EXP, r), r) + like(1.0, x)
    lanes = lanes_of(x)
    integers = "int32" if lanes == 1 else f"int32x{lanes}"
    exponent = tir.cast(n, integers) + splat(127, "int32", lanes)
    power = tir.reinterpret(exponent << splat(23, "int32", lanes), dtype=str(x.ty.dtype))
    return hold(tir.Select(x < like(_EXP_LOWEST, x), like(0.0, x), mantissa * power))


def exp2(value: Expr) -> Expr:
    """2 ** x for x <= 0, relative error below 2e-7 down to -126.5; exact for integers from -126 on,
    and 0 from -127 down."""
    x = hold(tir.max(value, like(-127.0, value)))
    # Its lowest bits are the nearest integer's. A plain sum would be cancelled by the difference.
    shifted = hold(fma(x, like(1.0, x), like(_ROUNDING, x)))
    r = hold(x - (shifted - like(_ROUNDING, x)))
    mantissa = fma(polynomial(_EXP2, r), r, like(1.0, x))
    # Added to the exponent. At -127 the mantissa is 1 or a little more, so that no sign appears.
    dtype, lanes = str(x.ty.dtype), lanes_of(x)
    integers = "int32" if lanes == 1 else f"int32x{lanes}"
    power = tir.reinterpret(shifted, dtype=integers) << splat(23, "int32", lanes)
    return hold(tir.reinterpret(tir.reinterpret(mantissa, dtype=integers) + power, dtype=dtype))


def power_of_two(exponent: Expr) -> Expr:
    """2 ** x of a whole number x <= 0; 0 from -127 down."""
    n = tir.cast(tir.max(exponent, like(-127.0, exponent)), "int32")
    return hold(tir.reinterpret((n + 127) << 23, dtype="float32"))


def ceil(value: Expr) -> Expr:
    """The least integer that is not below x."""
    return intrinsic("llvm.ceil", str(value.ty.dtype), value)


def tanh(value: Expr) -> Expr:
    """tanh(x), relative error below 2e-7."""
    x = hold(value)
    size = hold(absolute(x))
    square = hold(x * x)
    small = fma(hold(x * square), polynomial(_TANH, square), x)
    growth = exp(size + size)
    large = hold(like(1.0, x) - like(2.0, x) / (growth + like(1.0, x)))
    signed = tir.Select(x < like(0.0, x), like(0.0, x) - large, large)
    return hold(tir.Select(size < like(0.625, x), small, signed))


def erf(value: Expr) -> Expr:
    """erf(x), relative error below 2e-7."""
    x = hold(value)
    size = hold(tir.min(absolute(x), like(4.0, x)))
    small = hold(x * polynomial(_ERF, hold(x * x)))
    tail = exp(like(0.0, x) - polynomial(_ERFC, size))
    large = hold(like(1.0, x) - tail)
    signed = tir.Select(x < like(0.0, x), like(0.0, x) - large, large)
    return hold(tir.Select(size < like(1.0, x), small, signed))


def sigmoid(value: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return hold(like(1.0, value) / (like(1.0, value) + exp(like(0.0, value) - value)))


def silu(value: Expr, alpha: float = 1.0) -> Expr:
    """x * sigmoid(alpha * x)."""
    x = hold(value)
    negated = like(0.0, x) - x if alpha == 1 else x * like(-alpha, x)
    return hold(x / (like(1.0, x) + exp(negated)))


def gelu(value: Expr) -> Expr:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    x = hold(value)
    return hold((x * like(0.5, x)) * (like(1.0, x) + erf(x * like(_SQRT_HALF, x))))


def gelu_tanh(value: Expr) -> Expr:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    x = hold(value)
    cubed = fma(like(0.044715, x), hold(hold(x * x) * x), x)
    return hold((x * like(0.5, x)) * (like(1.0, x) + tanh(cubed * like(_SQRT_2_OVER_PI, x))))


def softcap(value: Expr, cap: float) -> Expr:
    """cap * tanh(x / cap)."""
    return hold(like(cap, value) * tanh(value / like(cap, value)))


_ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def activation(name: str) -> Callable[[Expr], Expr]:
    """The activation of the normal form called ``name``.

    Raises:
        UnsupportedError: No such activation; the message lists those that exist.
    """
    if name not in _ACTIVATIONS:
        raise UnsupportedError(
            f"activation {name!r} has no CPU kernel",
            where="GatedActivation",
            hint=f"one of {', '.join(_ACTIVATIONS)}",
        )
    return _ACTIVATIONS[name]
