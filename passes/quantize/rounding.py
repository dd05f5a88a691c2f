"""Rounding of groups to a grid, and its squared error: what the range searches compare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.passes.quantize.scheme import Scheme

Float32 = npt.NDArray[np.float32]


def group_ranges(x: Float32, name: str) -> tuple[Float32, Float32]:
    """Least and greatest value [m] of groups x [g, m], a group a column; both include zero.

    Raises:
        InputError: ``x`` holds infinities or NaN; ``name`` says of which weight.
    """
    low = np.minimum(x.min(axis=0), np.float32(0))
    high = np.maximum(x.max(axis=0), np.float32(0))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError(
            "the weight holds infinities or NaN", where=name, hint="the checkpoint is damaged"
        )
    return low, high


def steps(x: Float32, scale: Float32, zero: Float32, scheme: Scheme, out: Float32) -> None:
    """Values less their zero point, q - zero, into ``out`` [g, m]."""
    least, most = scheme.limits
    np.divide(x, scale, out=out)
    np.rint(out, out=out)
    if scheme.symmetric:
        np.clip(out, least, most, out=out)
    else:
        np.maximum(out, np.float32(least) - zero, out=out)
        np.minimum(out, np.float32(most) - zero, out=out)


def squared_error(
    x: Float32, scale: Float32, zero: Float32, scheme: Scheme, scratch: Float32
) -> Float32:
    """Squared error [m] of a candidate; ``scratch`` is as large as x."""
    steps(x, scale, zero, scheme, scratch)
    scratch *= scale
    scratch -= x
    return sum_of_squares(scratch)


def sum_of_squares(x: Float32) -> Float32:
    """The sum [m] of the squares of x [g, m], which is lost.

    The order of the sum is fixed, since near ties turn on it: four partial sums, of the elements
    i, i + 4, ... each, taken in sixteens from the last four of a sixteen to its first.
    """
    with np.errstate(over="ignore"):  # infinite is a fair error for weights near the largest float
        x *= x
        size, width = x.shape
        whole = size - size % 16
        starts = [16 * i + j for i in range(whole // 16) for j in (12, 8, 4, 0)]
        sums = np.zeros((4, width), np.float32)
        for start in (*starts, *range(whole, size, 4)):
            fours = x[start : start + 4]
            sums[: len(fours)] += fours
        total: Float32 = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return total
