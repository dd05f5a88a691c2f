"""Rounding of groups to a grid, and its squared error: what the range searches compare."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.passes.numerics.scheme import Scheme

Float32 = npt.NDArray[np.float32]
#: Which weights are zero and stay so.
Zeros = npt.NDArray[np.bool_]
_CACHE_LINE = 64
#: Rows that are transposed at a time.
_STRIP = 64


def aligned_empty(shape: tuple[int, ...]) -> Float32:
    """An array of any contents that starts at a cache line: where vectors cross lines, as in
    NumPy's own arrays, additions in the cache take up to half as long again."""
    raw = np.empty(4 * math.prod(shape) + _CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE
    return raw[start : raw.size - _CACHE_LINE + start].view(np.float32).reshape(shape)


def transpose_into(out: npt.NDArray[Any], x: npt.NDArray[Any]) -> None:
    """Write x [m, n] to ``out`` [n, m], some rows at a time: so that the parts of rows of ``out``
    that are written lie in the cache."""
    for at in range(0, len(x), _STRIP):
        out[:, at : at + _STRIP] = x[at : at + _STRIP].T


def group_ranges(x: Float32, name: str) -> tuple[Float32, Float32]:
    """Least and greatest value [...] of groups x [g, ...], along the first axis; both include
    zero.

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
    x: Float32,
    scale: Float32,
    zero: Float32,
    scheme: Scheme,
    scratch: Float32,
    weights: Float32 | None = None,
) -> Float32:
    """Squared error [m] of a candidate; ``scratch`` is as large as x. Errors in a row of x count as
    the square of its weight [g], if there are weights."""
    steps(x, scale, zero, scheme, scratch)
    scratch *= scale
    scratch -= x
    if weights is not None:
        scratch *= weights[:, None]
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


def sixteens(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view [g / 16, 4, 4, m] of x [g, m]; g is a multiple of 16."""
    return x.reshape(len(x) // 16, 4, 4, x.shape[1])


def summed_order(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The `sixteens` of groups x [g, m] that lie in memory as `sum_of_ordered_squares` takes them:
    the fours of a sixteen from its last to its first."""
    return sixteens(x)[:, ::-1]


def sum_of_ordered_squares(x: Float32) -> Float32:
    """The result of `sum_of_squares` for groups x [g, m] that lie in `summed_order`, in one sum."""
    x *= x
    sums = np.add.reduce(x.reshape(len(x) // 4, -1), axis=0).reshape(4, -1)
    total: Float32 = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return total
