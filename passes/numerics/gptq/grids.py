"""The grids that GPTQ rounds to: those of `affine` and `two_level`, a group at a time."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optc.ir.quantized_rows import QuantizedTile
from optc.passes.numerics.affine import group_parameters
from optc.passes.numerics.rounding import Float32, transpose_into
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.two_level import GroupGrid, channel_scales, group_grid


class Rounder(Protocol):
    """Rounds columns of m rows; a group's parameters are fixed when it is opened."""

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        """Choose the parameters of a group for its columns x [g, m], as they are now; ``weights``
        [g] say what an error in a column counts."""
        ...

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        """The values of a column w [m] of the open group, and what they stand for."""
        ...


class Grid(Rounder, Protocol):
    """Rounds to a grid of `Scheme`."""

    def tile(self, values: Float32) -> QuantizedTile:
        """The tile of the values [K, m], in the order of the weight's columns."""
        ...


def grid_of(columns: Float32, scheme: Scheme, name: str) -> Grid:
    """The grid for the columns [K, m] of a tile, as they are before anything is rounded."""
    if scheme.integer_scales:
        return _TwoLevel(columns, scheme, name)
    return _Affine(columns, scheme, name)


def _by_rows(values: Float32, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Whole numbers [K, m] as rows [m, K] of bytes."""
    rows = np.empty(values.shape[::-1], dtype)
    transpose_into(rows, values.astype(dtype))
    return rows


class _Affine:
    """Each group has a scale, and a zero point if it is not symmetric."""

    def __init__(self, columns: Float32, scheme: Scheme, name: str) -> None:
        self._scheme, self._name = scheme, name
        self._shape = (len(columns) // (scheme.group_size or len(columns)), columns.shape[1])
        self._scales, self._zeros = (
            np.ones(self._shape, np.float32),
            np.zeros(self._shape, np.uint8),
        )
        self._scale = self._zero = self._scales[0]
        self._least = self._most = self._scales[0]

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        scale, zero = group_parameters(x, self._scheme, self._name, weights)
        self._scales[group], self._zeros[group] = scale, zero
        least, most = self._scheme.limits
        self._scale, self._zero = scale, zero
        self._least, self._most = np.float32(least) - zero, np.float32(most) - zero

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        steps = np.rint(w / self._scale)
        np.maximum(steps, self._least, out=steps)
        np.minimum(steps, self._most, out=steps)
        return steps + self._zero, steps * self._scale

    def tile(self, values: Float32) -> QuantizedTile:
        symmetric = self._scheme.symmetric
        whole = _by_rows(values, np.dtype(np.int8 if symmetric else np.uint8))
        scales, zeros = self._scales.T.copy("C"), None if symmetric else self._zeros.T.copy("C")
        if self._scheme.group_size:
            return QuantizedTile(whole, scales, zeros)
        return QuantizedTile(whole, scales[:, 0], None if zeros is None else zeros[:, 0])


class _TwoLevel:
    """Each channel has a float scale, from its weights as they were; each group an integer one."""

    def __init__(self, columns: Float32, scheme: Scheme, name: str) -> None:
        self._scheme = scheme
        self._channel = channel_scales(columns, scheme.group_size, name)
        shape = (len(columns) // scheme.group_size, columns.shape[1])
        self._scales, self._zeros = np.ones(shape, np.uint8), np.zeros(shape, np.uint8)
        self._grid = GroupGrid(self._channel, self._channel)
        self._most = np.float32(scheme.limits[1])

    def open(self, group: int, x: Float32, weights: Float32) -> None:
        self._grid = group_grid(x / self._channel, self._scheme, weights)
        self._scales[group], self._zeros[group] = self._grid

    def round(self, w: Float32) -> tuple[Float32, Float32]:
        scale, zero = self._grid
        q = np.rint((w / self._channel + zero) / scale)
        np.maximum(q, np.float32(0), out=q)
        np.minimum(q, self._most, out=q)
        return q, (q * scale - zero) * self._channel

    def tile(self, values: Float32) -> QuantizedTile:
        whole = _by_rows(values, np.dtype(np.uint8))
        return QuantizedTile(
            whole, self._channel.copy(), self._zeros.T.copy("C"), self._scales.T.copy("C")
        )
