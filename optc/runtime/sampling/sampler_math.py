"""Arithmetic of sampling whose bits do not depend on who computes it: NumPy here, or an engine.

Every operation is a float64 operation rounded on its own, in the order written here, or an integer
one; compiled engines do the same operations (no fused multiply-add) with the constants of this
module. Probabilities are summed as integers, which is exact in any order and any number of parts.
So a compiled sampler draws the very token that NumPy draws, and sums may be cut among threads.

A token's *distance* is how far its score lies below the best one: (largest logit - logit) /
temperature, at least 0, held at 1e30. Its *mass* is its probability in units of 2**-44 of the best
token's: exp(-distance) * 2**44, rounded to an integer.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Float32

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

#: Bits of a mass behind the binary point: 2**19 tokens can be summed in an int64.
MASS_BITS = 44
#: The mass of the likeliest token.
WHOLE_MASS = 1 << MASS_BITS
#: Distances from here on have no mass (exp(-32) * 2**44 is below a half).
FARTHEST = 32.0
#: Distances are held here, so that they can be averaged.
HELD = 1e30
LOG2_E = 1.4426950408889634
#: ln 2 in two parts; the first has 21 trailing zero bits, so its products with exponents are exact.
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10
#: exp(r) by powers of r, for abs(r) <= ln(2) / 2: relative error below 7e-15.
EXP = tuple(1 / math.factorial(power) for power in range(12))
#: log((1 + s) / (1 - s)) / s - 2 by powers of s**2 from the first on, for abs(s) <= 0.172: relative
#: error of the logarithm below 1e-16 before rounding.
LOG = tuple(2 / (2 * power + 1) for power in range(1, 11))
SQRT_HALF = 0.7071067811865476


def distances(logits: Float32, temperature: float) -> Float64:
    """[V] distances of logits [V] without NaN."""
    values = logits.astype(np.float64)
    largest = values.max()
    with np.errstate(over="ignore", invalid="ignore"):  # infinities
        below = np.where(values < largest, largest - values, 0.0) / temperature
    return np.minimum(below, HELD)


def masses(distance: Float64) -> Int64:
    """[n] masses of distances [n]."""
    x = -np.minimum(distance, FARTHEST)
    exponent = np.rint(x * LOG2_E)
    r = (x - exponent * LN2_HIGH) - exponent * LN2_LOW
    mantissa = np.full_like(r, EXP[-1])
    for coefficient in EXP[-2::-1]:
        mantissa = mantissa * r + coefficient
    rounded: Int64 = np.rint(np.ldexp(mantissa, exponent.astype(np.int32) + MASS_BITS)).astype(
        np.int64
    )
    return rounded


def log(x: Float64) -> Float64:
    """Natural logarithms of positive normal numbers, same shape; relative error below 4e-16."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < SQRT_HALF
    mantissa = np.where(low, mantissa * 2, mantissa)
    power = (exponent - low).astype(np.float64)
    s = (mantissa - 1) / (mantissa + 1)
    square = s * s
    series = np.full_like(square, LOG[-1])
    for coefficient in LOG[-2::-1]:
        series = series * square + coefficient
    tail = power * LN2_LOW + (series * square) * s
    result: Float64 = power * LN2_HIGH + (2 * s + tail)
    return result
