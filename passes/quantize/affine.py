"""Affine quantization of weight rows: pure functions of a tile of rows.

n rows, K columns, G = K / group_size groups (1 per channel), b bits.

| scheme | values | scale | zero point |
|---|---|---|---|
| int8 symmetric | int8 [n, K] in ±127 | max|w| / 127 | |
| int8 asymmetric | uint8 [n, K] | (max - min) / 255, range includes 0 | uint8 |
| int4 symmetric | int8 [n, K] in [-8, 7] | best of max|w| / 7 … / 8.75 | |
| int4 asymmetric | uint8 [n, K] in [0, 15] | best of (max - min) / 15 and narrower | uint8 |

Scales are float32 [n] per channel; [n, G] in groups, rounded to float16 *before* the values are
computed, so that what an engine stores is what was computed. "Best" is the least squared error
of the group over a fixed list of ranges, the first of equals: the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.weights import LazyWeight

Float32 = npt.NDArray[np.float32]

_FLOAT16_TINY = np.float32(2.0**-24)
_FLOAT16_MAX = np.float32(65504.0)

#: Shares of the full range that the 4-bit searches try, by symmetric or not: measured on the
#: example model, the symmetric search lowers the mean KL by 17 %, the asymmetric one by 4 %.
_NARROWED = {True: (1.0, 0.95, 0.9, 0.875, 0.85, 0.8), False: (1.0, 0.95, 0.9, 0.85)}
#: Elements that are quantized at a time, so that they stay in the processor's cache.
_CHUNK_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Scheme:
    """How one weight is quantized.

    Attributes:
        bits: 8 or 4.
        group_size: Columns that share a scale; 0 is all of them (per channel).
        symmetric: Signed values without zero points.
    """

    bits: int
    group_size: int
    symmetric: bool

    @property
    def label(self) -> str:
        """For reports: ``int4 groups of 32 asymmetric``, ``int8 per channel``."""
        spread = f"groups of {self.group_size}" if self.group_size else "per channel"
        return f"int{self.bits} {spread}{'' if self.symmetric else ' asymmetric'}"

    @property
    def spreads(self) -> bool:
        """Whether groups are quantized as columns in memory: scales then follow one another along
        the rows, which is several times faster than a scale a row where groups are short."""
        return bool(self.group_size) or self.bits == 4

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        if not self.symmetric:
            return 0, (1 << self.bits) - 1
        return (-127, 127) if self.bits == 8 else (-8, 7)


def quantized_rows(weight: LazyWeight, scheme: Scheme, name: str) -> QuantizedRows:
    """``weight`` [N, K] quantized on demand, a tile of rows at a time.

    Raises (when read):
        InputError: The weight holds infinities or NaN.
    """
    read_rows = weight.read_rows

    def read(start: int, stop: int) -> QuantizedTile:
        rows = np.asarray(read_rows(start, stop), dtype=np.float32)
        return quantize_rows(rows, scheme, name)

    return QuantizedRows(
        read,
        weight.rows_shape[0],
        weight.rows_shape[1],
        scheme.bits,
        scheme.group_size,
        scheme.symmetric,
        name,
    )


def quantize_rows(rows: Float32, scheme: Scheme, name: str = "weight") -> QuantizedTile:
    """Quantize rows [n, K]; K must be a multiple of the group size.

    Every group's result depends on that group alone, to the bit.

    Raises:
        InputError: ``rows`` holds infinities or NaN; ``name`` says of which weight.
    """
    n, columns = rows.shape
    size = scheme.group_size or columns
    groups = columns // size
    values = np.empty((n, columns), np.int8 if scheme.symmetric else np.uint8)
    scales = np.empty((n, groups), np.float32)
    zero_points = None if scheme.symmetric else np.empty((n, groups), np.uint8)
    step = max(1, _CHUNK_ELEMENTS // columns)
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
    flat = None if zero_points is None else zero_points[:, 0]
    return QuantizedTile(values, scales[:, 0], flat)


def dequantize_rows(tile: QuantizedTile, group_size: int) -> Float32:
    """The float32 rows [n, K] that ``tile`` stands for."""
    n, columns = tile.values.shape
    size = group_size or columns
    x = tile.values.reshape(n, -1, size).astype(np.float32)
    if tile.zero_points is not None:
        x -= tile.zero_points.reshape(n, -1, 1).astype(np.float32)
    x *= tile.scales.reshape(n, -1, 1)
    return x.reshape(n, columns)


def _quantize_groups(x: Float32, scheme: Scheme, name: str) -> tuple[Float32, Float32, Float32]:
    """x [g, m], a group a column, to float-typed values [g, m], scales and zero points [m]."""
    low = np.minimum(x.min(axis=0), np.float32(0))
    high = np.maximum(x.max(axis=0), np.float32(0))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InputError(
            "the weight holds infinities or NaN", where=name, hint="the checkpoint is damaged"
        )
    candidates = _parameters(low, high, scheme)
    scale, zero = next(candidates)
    q = np.empty_like(x)
    if scheme.bits == 4:
        least_error = _error(x, scale, zero, scheme, q)
        for other_scale, other_zero in candidates:
            error = _error(x, other_scale, other_zero, scheme, q)
            better = error < least_error
            scale, zero = np.where(better, other_scale, scale), np.where(better, other_zero, zero)
            least_error = np.where(better, error, least_error)
    _steps(x, scale, zero, scheme, q)
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
            scale = _storable(span / np.float32(most - least), scheme)
            yield scale, np.clip(np.rint(-bottom / scale), least, most)


def _storable(scale: Float32, scheme: Scheme) -> Float32:
    """Scales as they are stored; never zero, so that division is safe."""
    if scheme.group_size:
        bounded = np.clip(scale, _FLOAT16_TINY, _FLOAT16_MAX)
        rounded: Float32 = bounded.astype(np.float16).astype(np.float32)
        return np.where(scale == 0, np.float32(1), rounded)
    return np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)


def _steps(x: Float32, scale: Float32, zero: Float32, scheme: Scheme, out: Float32) -> None:
    """Values less their zero point, q - zero, into ``out`` [g, m]."""
    least, most = scheme.limits
    np.divide(x, scale, out=out)
    np.rint(out, out=out)
    if scheme.symmetric:
        np.clip(out, least, most, out=out)
    else:
        np.maximum(out, np.float32(least) - zero, out=out)
        np.minimum(out, np.float32(most) - zero, out=out)


def _error(x: Float32, scale: Float32, zero: Float32, scheme: Scheme, scratch: Float32) -> Float32:
    """Squared error [m] of a candidate; ``scratch`` is as large as x.

    The order of the sum is fixed, since near ties turn on it: four partial sums, of the elements
    i, i + 4, ... each, taken in sixteens from the last four of a sixteen to its first.
    """
    _steps(x, scale, zero, scheme, scratch)
    scratch *= scale
    scratch -= x
    with np.errstate(over="ignore"):  # infinite is a fair error for weights near the largest float
        scratch *= scratch
        size, width = x.shape
        whole = size - size % 16
        starts = [16 * i + j for i in range(whole // 16) for j in (12, 8, 4, 0)]
        sums = np.zeros((4, width), np.float32)
        for start in (*starts, *range(whole, size, 4)):
            fours = scratch[start : start + 4]
            sums[: len(fours)] += fours
        error: Float32 = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return error
