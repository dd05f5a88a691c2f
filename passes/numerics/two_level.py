"""Two-level quantization: the values of a group lie on its channel's int8 grid.

A weight is ``c * (q * s - z)``: a float32 scale ``c`` for each output channel, an integer scale
``s`` and a zero point ``z`` (0..128) for each group, ``q`` of 2 to 6 bits (s is 1..85 with 2 bits,
..36 with 3, ..17 with 4, ..8 with 5, ..4 with 6). ``q * s - z`` always is within -128..127: an int8
weight per channel that takes 4 to 64 equally spaced values in each group, so that a matmul needs no
float operation for each group ("progressive group quantization": Lin et al., QServe, 2024,
arXiv:2405.04532, whose zero point is a multiple of s). A zero point on the int8 grid costs no more;
the values need not hold zero then, and lie closer together. For pruned weights they do: the zero
point is a multiple of s.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from optc.ir.quantized_rows import QuantizedTile
from optc.passes.numerics.rounding import (
    Float32,
    aligned_empty,
    group_ranges,
    sixteens,
    sum_of_ordered_squares,
    summed_order,
)
from optc.passes.numerics.scheme import CHUNK_ELEMENTS, Scheme

_INT8 = (-128, 127)


class _Range(NamedTuple):
    """The ranges of q and s at a number of bits, and the candidates that are tried.

    Attributes:
        most: Greatest q.
        candidates: Share of the group's range that the values cover, steps less than the integer
            scale nearest to that, and where the values lie, in steps above the middle of the range.
        zeros: Zero is one of the values.
    """

    most: int
    candidates: tuple[tuple[float, int, float], ...]
    zeros: bool = False

    @property
    def greatest_scale(self) -> int:
        """Greatest s: all values lie within int8."""
        return (_INT8[1] - _INT8[0]) // self.most


#: Of few values many must cover less than the range: the extremes are rare, and a wide step hurts
#: all others. Beside these 50, 750 candidates lower the squared error by another 2 %.
_CUT_OFF = tuple(
    (1 - part / 20, 0, above)
    for part, above in product(range(10), (0.0, 1 / 4, -1 / 4, 1 / 2, -1 / 2))
)

# In a trial in NumPy on the example model the last three lowered the mean KL of 4 bits by 2 %;
# three more, by another 0.6 %.
_NEAREST = (
    *((1.0, 0, 0.0), (1.0, 0, 1 / 6), (1.0, 0, -1 / 6), (1.0, 0, 1 / 3), (1.0, 0, -1 / 3)),
    *((1.0, 0, 1 / 2), (1.0, 1, 1 / 4), (1.0, 1, -1 / 4), (1.0, -1, 0.0), (1.0, 1, 0.0)),
    (1.0, 0, -1 / 2),
)

_RANGES = {
    2: _Range(3, _CUT_OFF),
    3: _Range(7, _CUT_OFF),
    4: _Range(15, _NEAREST),
    5: _Range(31, _NEAREST),
    # Scales are so small that the nearest one may cut off much of the range: one more covers it.
    6: _Range(63, ((1.0, 0, 0.0), (1.0, -1, 0.0))),
}
#: By bits: for each s, the greatest up to it with which a multiple of s is a zero point that leaves
#: all values within int8.
_WITH_ZERO = {
    bits: np.maximum.accumulate(
        [
            s if s and -(-max(s * one.most - _INT8[1], 0) // s) * s <= -_INT8[0] else 0
            for s in range(one.greatest_scale + 1)
        ]
    ).astype(np.float32)
    for bits, one in _RANGES.items()
}


class GroupGrid(NamedTuple):
    """Of m groups: integer scales s [m] and zero points z [m], whole numbers; or [C, m] of them,
    a candidate a row."""

    scale: Float32
    zero: Float32


def quantize_two_level(rows: Float32, scheme: Scheme, name: str) -> QuantizedTile:
    """Quantize rows [n, K]; K must be a multiple of the group size, and that of 16. Rows do not
    depend on others.

    Raises:
        InputError: ``rows`` holds infinities or NaN; ``name`` says of which weight.
    """
    n, columns = rows.shape
    size, limits = scheme.group_size, _range_of(scheme)
    groups = columns // size
    values = np.empty((n, columns), np.uint8)
    channels = np.empty(n, np.float32)
    scales, zeros = (np.empty((n, groups), np.uint8) for _ in range(2))
    step = max(1, CHUNK_ELEMENTS // columns)
    for start in range(0, n, step):
        part = slice(start, start + step)
        x = _columns(rows[part], size)
        low, high = group_ranges(x, name)
        channel = _channel_scales(low, high, groups)
        x /= channel
        q = aligned_empty(x.shape)
        grid = _best_grid(x, low / channel, high / channel, limits, q)
        _values(x, grid, limits.most, q)
        in_rows = values[part].reshape(-1, size).T
        sixteens(in_rows)[...] = summed_order(q.astype(np.uint8))  # bytes move faster
        channels[part] = channel[::groups]
        scales[part] = grid.scale.reshape(-1, groups)
        zeros[part] = grid.zero.reshape(-1, groups)
    return QuantizedTile(values, channels, zeros, scales)


def channel_scales(columns: Float32, group_size: int, name: str) -> Float32:
    """The float scales [m] of m channels, whose weights are the columns of [K, m].

    Raises:
        InputError: ``columns`` holds infinities or NaN; ``name`` says of which weight.
    """
    groups = len(columns) // group_size
    by_group = columns.reshape(groups, group_size, -1).swapaxes(0, 1)
    low, high = (one.T.ravel() for one in group_ranges(by_group, name))  # [m * groups]
    return _channel_scales(low, high, groups)[::groups]


def group_grid(x: Float32, scheme: Scheme, weights: Float32) -> GroupGrid:
    """The grid of groups x [g, m] in units of their channels' scales, whose range may be a little
    beyond int8; ``weights`` [g] say what an error in a row of x counts."""
    ordered = aligned_empty(x.shape)
    summed_order(ordered)[...] = sixteens(x)
    least, most = (np.float32(bound) for bound in _INT8)
    low = np.clip(np.minimum(x.min(axis=0), np.float32(0)), least, None)
    high = np.clip(np.maximum(x.max(axis=0), np.float32(0)), None, most)
    by_weight = np.empty((len(x), 1), np.float32)
    summed_order(by_weight)[...] = sixteens(weights[:, None])
    return _best_grid(ordered, low, high, _range_of(scheme), aligned_empty(x.shape), by_weight)


def _range_of(scheme: Scheme) -> _Range:
    return _RANGES[scheme.bits]._replace(zeros=scheme.zeros)


def _columns(rows: Float32, size: int) -> Float32:
    """The groups of rows [n, K] as columns [size, m], whose elements lie in `summed_order`."""
    groups = rows.reshape(-1, size).T
    x = aligned_empty(groups.shape)
    summed_order(x)[...] = sixteens(groups)
    return x


def _channel_scales(low: Float32, high: Float32, groups: int) -> Float32:
    """c [m] of groups with these ranges: the least for which all ranges are within int8.

    Never zero or denormal, so that division is safe.
    """
    least, most = (np.float32(bound) for bound in _INT8)
    span = most - least
    needed = np.maximum(np.maximum(high / most, low / least), high / span - low / span)
    channel = needed.reshape(-1, groups).max(axis=1)
    channel = np.where(channel < np.finfo(np.float32).tiny, np.float32(1), channel)
    return np.repeat(channel, groups)


def _best_grid(
    x: Float32,
    low: Float32,
    high: Float32,
    limits: _Range,
    scratch: Float32,
    weights: Float32 | None = None,
) -> GroupGrid:
    """The first of those of least squared error; all in units of the channel's scale. ``weights``
    [g, 1] lie as x does."""
    first, *others = map(GroupGrid, *_grids(low, high, limits))
    best = GroupGrid(first.scale.copy(), first.zero.copy())
    least_error = _squared_error(x, first, limits.most, scratch, weights)
    for other in others:
        error = _squared_error(x, other, limits.most, scratch, weights)
        better = error < least_error
        for kept, new in zip((least_error, *best), (error, *other), strict=True):
            np.copyto(kept, new, where=better)
    return best


def _grids(low: Float32, high: Float32, limits: _Range) -> GroupGrid:
    """The candidates [C, m]: all in one operation each, as short ones keep threads waiting for the
    interpreter."""
    share, fewer, above = np.array(limits.candidates, np.float32).T[:, :, None]
    scale: Float32 = np.rint((high - low) * share / np.float32(limits.most)) - fewer
    np.clip(scale, 1, limits.greatest_scale, out=scale)
    if limits.zeros:
        scale = _WITH_ZERO[limits.most.bit_length()][scale.astype(np.intp)]
    last = scale * np.float32(limits.most)
    zero = above * scale
    zero += (low + high) * np.float32(0.5)
    np.subtract(last * np.float32(0.5), zero, out=zero)
    last -= np.float32(_INT8[1])
    np.maximum(last, 0, out=last)
    if limits.zeros:
        steps = np.rint(zero / scale)
        np.clip(steps, np.ceil(last / scale), np.floor(-_INT8[0] / scale), out=steps)
        np.minimum(steps, limits.most, out=steps)
        return GroupGrid(scale, steps * scale)
    np.rint(zero, out=zero)
    np.clip(zero, last, -_INT8[0], out=zero)
    return GroupGrid(scale, zero)


def _values(x: Float32, grid: GroupGrid, most: int, out: Float32) -> None:
    """The q of x [g, m] into ``out``."""
    least, greatest = np.zeros_like(grid.scale), np.full_like(grid.scale, most)
    np.add(x, grid.zero, out=out)
    np.divide(out, grid.scale, out=out)
    np.rint(out, out=out)
    np.maximum(out, least, out=out)  # with vectors these are faster than with numbers, or clip
    np.minimum(out, greatest, out=out)


def _squared_error(
    x: Float32, grid: GroupGrid, most: int, scratch: Float32, weights: Float32 | None
) -> Float32:
    """The error [m] of a candidate for groups in `summed_order`; ``scratch`` is as large as x."""
    _values(x, grid, most, scratch)
    scratch *= grid.scale
    scratch -= grid.zero
    scratch -= x
    if weights is not None:
        scratch *= weights
    return sum_of_ordered_squares(scratch)
