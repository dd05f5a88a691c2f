"""Affine quantization of weight rows: pure functions of a tile of rows.

n rows, K columns, G = K / group_size groups (1 per channel), b bits.

| scheme | values | scale | zero point |
|---|---|---|---|
| int8 symmetric | int8 [n, K] in ±127 | max|w| / 127 | |
| int8 asymmetric | uint8 [n, K] | (max - min) / 255, range includes 0 | uint8 |
| int4 symmetric | int8 [n, K] in [-8, 7] | best of max|w| / 7 … / 8.75 | |
| int4 asymmetric | uint8 [n, K] in [0, 15] | best of (max - min) / 15 and narrower | uint8 |
| int4, int6 with integer scales | uint8 [n, K] in [0, 15], [0, 63] | `two_level` | uint8 |

Scales are float32 [n] per channel; [n, G] in groups, rounded to float16 *before* the values are
computed, so that what an engine stores is what was computed. "Best" is the least squared error
of the group over a fixed list of ranges, the first of equals: the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.quantized_rows import dequantize_rows as dequantize_rows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.rounding import Float32, Zeros, group_ranges, squared_error, steps
from optc.passes.numerics.scheme import CHUNK_ELEMENTS, Scheme
from optc.passes.numerics.two_level import quantize_two_level

#: Rounds rows [n, K] to a scheme's grid; the text names the weight in messages. Last, what becomes
#: zero whatever it is in the rows (`zeros_of` the weight), if anything.
RoundRows = Callable[[Float32, Scheme, str, Zeros | None], QuantizedTile]
_FLOAT16_TINY = np.float32(np.finfo(np.float16).smallest_subnormal)
_FLOAT16_MAX = np.float32(np.finfo(np.float16).max)

#: Shares of the full range that the 4-bit searches try, by symmetric or not: measured on the
#: example model, the symmetric search lowers the mean KL by 17 %, the asymmetric one by 4 %.
_NARROWED = {True: (1.0, 0.95, 0.9, 0.875, 0.85, 0.8), False: (1.0, 0.95, 0.9, 0.85)}


def quantized_rows(
    weight: LazyWeight, scheme: Scheme, name: str, round_rows: RoundRows | None = None
) -> QuantizedRows:
    """``weight`` [N, K] quantized on demand, a tile of rows at a time.

    Args:
        weight: The weight.
        scheme: The grid.
        name: Of the weight, for messages and names of the parts.
        round_rows: How rows are rounded to it; None is each weight to the nearest value.

    Raises (when read):
        InputError: The weight holds infinities or NaN.
    """
    read_rows, rounded = weight.read_rows, round_rows or quantize_rows

    def read(start: int, stop: int) -> QuantizedTile:
        rows = np.asarray(read_rows(start, stop), dtype=np.float32)
        return rounded(rows, scheme, name, zeros_of(rows, scheme))

    return QuantizedRows(
        read,
        weight.rows_shape[0],
        weight.rows_shape[1],
        scheme.bits,
        scheme.group_size,
        scheme.symmetric,
        name,
        scheme.integer_scales,
    )


def zeros_of(rows: Float32, scheme: Scheme) -> Zeros | None:
    """The mask of the weights [n, K] that stay zero; None if the scheme keeps none."""
    return rows == 0 if scheme.zeros else None


def quantize_rows(
    rows: Float32, scheme: Scheme, name: str = "weight", zeros: Zeros | None = None
) -> QuantizedTile:
    """Quantize rows [n, K]; K must be a multiple of the group size.

    Every group's result depends on that group alone, to the bit; with integer scales, on its row.

    Args:
        rows: float32.
        scheme: The grid.
        name: Of the weight, for messages.
        zeros: [n, K] what becomes zero, whatever it is.

    Raises:
        InputError: ``rows`` holds infinities or NaN; ``name`` says of which weight.
    """
    if zeros is not None:
        rows = np.where(zeros, np.float32(0), rows)
    if scheme.integer_scales:
        return quantize_two_level(rows, scheme, name)
    n, columns = rows.shape
    size = scheme.group_size or columns
    groups = columns // size
    values = np.empty((n, columns), np.int8 if scheme.symmetric else np.uint8)
    scales = np.empty((n, groups), np.float32)
    zero_points = None if scheme.symmetric else np.empty((n, groups), np.uint8)
    step = max(1, CHUNK_ELEMENTS // columns)
    for start in range(0, n, step):
        part = slice(start, start + step)
        x = rows[part].reshape(-1, size).T
        if scheme.spreads:
            x = np.ascontiguousarray(x)
        q, scale, zero = _quantize_groups(x, scheme, name)
        values[part].reshape(-1, size)[...] = q.astype(values.dtype).T  # bytes move faster
        scales[part] = scale.reshape(-1, groups)
        if zero_points is not None:
            zero_points[part] = zero.reshape(-1, groups)
    if scheme.group_size:
        return QuantizedTile(values, scales, zero_points)
    flat = None if zero_points is None else zero_points.ravel()
    return QuantizedTile(values, scales.ravel(), flat)


def group_parameters(
    x: Float32, scheme: Scheme, name: str, weights: Float32 | None = None
) -> tuple[Float32, Float32]:
    """Scales and zero points [m] of groups x [g, m], a group a column.

    Args:
        x: The groups.
        scheme: The grid.
        name: Of the weight, for messages.
        weights: [g] what an error in each row of x counts; None is the same for all.
    """
    low, high = group_ranges(x, name)
    candidates = _parameters(low, high, scheme)
    scale, zero = next(candidates)
    if scheme.bits == 4:
        scratch = np.empty_like(x)
        least_error = squared_error(x, scale, zero, scheme, scratch, weights)
        for other_scale, other_zero in candidates:
            error = squared_error(x, other_scale, other_zero, scheme, scratch, weights)
            better = error < least_error
            scale, zero = np.where(better, other_scale, scale), np.where(better, other_zero, zero)
            least_error = np.where(better, error, least_error)
    return scale, zero


def _quantize_groups(x: Float32, scheme: Scheme, name: str) -> tuple[Float32, Float32, Float32]:
    """x [g, m], a group a column, to float-typed values [g, m], scales and zero points [m]."""
    scale, zero = group_parameters(x, scheme, name)
    q = np.empty_like(x)
    steps(x, scale, zero, scheme, q)
    q += zero
    return q, scale, zero


def _parameters(low: Float32, high: Float32, scheme: Scheme) -> Iterator[tuple[Float32, Float32]]:
    """Scales and zero points [m] to try, the plain one first."""
    least, most = scheme.limits
    shares = _NARROWED[scheme.symmetric] if scheme.bits == 4 else (1.0,)
    for share in shares:
        if scheme.symmetric:
            reach: Float32 = np.maximum(high, -low) * np.float32(share)
            scale = _storable(reach / np.float32(most), scheme)
            yield scale, np.zeros_like(scale)
        else:
            bottom, top = low * np.float32(share), high * np.float32(share)
            span: Float32 = top - bottom
            scale = _storable(span / np.float32(most), scheme)  # the least value is 0
            yield scale, np.clip(np.rint(-bottom / scale), least, most)


def _storable(scale: Float32, scheme: Scheme) -> Float32:
    """Scales as they are stored; never zero, so that division is safe."""
    if scheme.group_size:
        bounded = np.clip(scale, _FLOAT16_TINY, _FLOAT16_MAX)
        rounded: Float32 = bounded.astype(np.float16).astype(np.float32)
        return np.where(scale == 0, np.float32(1), rounded)
    return np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
