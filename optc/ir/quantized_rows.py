"""`QuantizedRows`: values, scales and zero points of one weight, computed together tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.weights import Array, LazyWeight, RowReader


class QuantizedTile(NamedTuple):
    """Some rows of a quantized weight; n rows, K columns, G groups.

    Attributes:
        values: [n, K] int8 (symmetric) or uint8 (asymmetric), one value a byte at any bit width.
        scales: [n] float32 per channel, or [n, G].
        zero_points: uint8 [n] or [n, G], one for each scale or group, or float32 [n, G] between
            values; None if symmetric.
        group_scales: uint8 [n, G], integer scales s of groups beside ``scales`` [n]; a weight is
            then scale * (value * s - zero point). None if ``scales`` are of the groups themselves:
            scale * (value - zero point).
    """

    values: Array
    scales: Array
    zero_points: Array | None
    group_scales: Array | None = None

    def as_int8(self) -> QuantizedTile:
        """The same weights as int8 per channel, where groups have integer scales."""
        if self.group_scales is None or self.zero_points is None:
            return self
        n, groups = self.group_scales.shape
        integers = self.values.reshape(n, groups, -1).astype(np.int16)
        integers *= self.group_scales[:, :, None]
        integers -= self.zero_points[:, :, None]
        return QuantizedTile(integers.reshape(n, -1).astype(np.int8), self.scales, None)


def dequantize_rows(tile: QuantizedTile, group_size: int) -> npt.NDArray[np.float32]:
    """The float32 rows [n, K] that ``tile`` stands for."""
    n, columns = tile.values.shape
    size = group_size or columns
    x = tile.values.reshape(n, -1, size).astype(np.float32)
    if tile.group_scales is not None:
        x *= tile.group_scales.reshape(n, -1, 1).astype(np.float32)
    if tile.zero_points is not None:
        x -= tile.zero_points.reshape(n, -1, 1).astype(np.float32)
    x *= tile.scales.reshape(n, -1, 1)
    return x.reshape(n, columns)


def joined_tiles(tiles: Sequence[QuantizedTile]) -> QuantizedTile:
    """The rows of ``tiles``, all of one kind, below each other."""
    values, scales, zero_points, group_scales = zip(*tiles, strict=True)
    return QuantizedTile(
        np.concatenate(values), np.concatenate(scales), _joined(zero_points), _joined(group_scales)
    )


def _joined(parts: Sequence[Array | None]) -> Array | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found else None


class QuantizedPart(LazyWeight):
    """The values, scales, group scales or zero points of a quantized weight.

    A reader that wants them all reads ``whole``, so that the work is done once.

    Args:
        read_rows, rows_shape, dtype, name, transposed: As of `LazyWeight`.
        whole: The quantized weight.
    """

    def __init__(
        self,
        read_rows: RowReader,
        rows_shape: Sequence[int],
        dtype: ir.DataType,
        name: str,
        *,
        whole: QuantizedRows,
        transposed: bool = False,
    ) -> None:
        super().__init__(read_rows, rows_shape, dtype, name, transposed=transposed)
        self.whole = whole

    def transpose(self) -> QuantizedPart:
        """The same part seen the other way round."""
        return QuantizedPart(
            self.read_rows,
            self.rows_shape,
            self.dtype,
            self.name or "",
            whole=self.whole,
            transposed=not self.transposed,
        )


@dataclass(frozen=True)
class QuantizedRows:
    """A quantized weight [N, K] that is read by rows; nothing is kept.

    Attributes:
        read: ``read(start, stop)`` quantizes these rows.
        rows: N.
        columns: K.
        bits: 8 or 4; 6 to 2 with integer scales.
        group_size: Columns that share a scale; 0 is all of them (per channel).
        symmetric: No zero points, and signed values.
        name: Of the float weight, for messages and the names of the parts.
        integer_scales: Groups have integer scales beside the channels' float ones.
        float_zeros: Zero points are float32: of 4-bit values in groups.
    """

    read: Callable[[int, int], QuantizedTile]
    rows: int
    columns: int
    bits: int
    group_size: int
    symmetric: bool
    name: str
    integer_scales: bool = False
    float_zeros: bool = False

    def as_int8(self) -> QuantizedRows:
        """The same weight as int8 per channel, for engines without kernels for integer scales."""
        if not self.integer_scales:
            return self
        read = self.read
        return replace(
            self,
            read=lambda start, stop: read(start, stop).as_int8(),
            bits=8,
            group_size=0,
            symmetric=True,
            integer_scales=False,
        )

    def floats(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """The values that the rows ``start:stop`` stand for, float32 [stop - start, K]."""
        return dequantize_rows(self.read(start, stop), self.group_size)

    def above(self, others: Sequence[QuantizedRows]) -> QuantizedRows | None:
        """The rows of all below each other, in the widest of their numbers of bits; None if they
        are no weights of one kind of grid. Values of fewer bits are values of more."""
        every = [self, *others]
        kinds = {
            (one.group_size, one.symmetric, one.integer_scales, one.float_zeros) for one in every
        }
        bits = {one.bits for one in every}
        if len(kinds) > 1 or (self.integer_scales and len(bits) > 1):
            return None
        bounds = np.cumsum([0, *(one.rows for one in every)]).tolist()

        def read(start: int, stop: int) -> QuantizedTile:
            parts = [
                one.read(max(start, low) - low, min(stop, high) - low)
                for one, low, high in zip(every, bounds, bounds[1:], strict=False)
                if start < high and low < stop
            ]
            return joined_tiles(parts) if len(parts) != 1 else parts[0]

        return replace(self, read=read, rows=bounds[-1], bits=max(bits))

    def scaled(self, factors: Array) -> QuantizedRows:
        """Each row by its factor, by the scales."""
        read = self.read

        def of(start: int, stop: int) -> QuantizedTile:
            tile = read(start, stop)
            own = factors[start:stop].reshape(-1, *[1] * (tile.scales.ndim - 1))
            return tile._replace(scales=tile.scales * own)

        return replace(self, read=of)

    def taken(self, index: Array) -> QuantizedRows:
        """The rows of these numbers, in their order; those of a tile should lie close together, as
        all between the first and the last are read."""
        read = self.read

        def of(start: int, stop: int) -> QuantizedTile:
            wanted = index[start:stop]
            low = int(wanted.min())
            tile, rows = read(low, int(wanted.max()) + 1), wanted - low
            zeros, integers = tile.zero_points, tile.group_scales
            return QuantizedTile(
                tile.values[rows],
                tile.scales[rows],
                None if zeros is None else zeros[rows],
                None if integers is None else integers[rows],
            )

        return replace(self, read=of, rows=len(index))

    def values(self) -> QuantizedPart:
        """The values as the graph sees them: [K, N] INT8, UINT8 (all but 8 and 4 bits too), INT4 or
        UINT4."""
        kinds = {
            (8, True): (ir.DataType.INT8, np.dtype(np.int8)),
            (8, False): (ir.DataType.UINT8, np.dtype(np.uint8)),
            (4, True): (ir.DataType.INT4, np.dtype(ml_dtypes.int4)),
            (4, False): (ir.DataType.UINT4, np.dtype(ml_dtypes.uint4)),
        }
        # ONNX has no types of 6, 5 and 3 bits, and at IR version 10 none of 2.
        bits = self.bits if self.bits in (8, 4) else 8
        dtype, numpy_dtype = kinds[bits, self.symmetric]
        return QuantizedPart(
            lambda start, stop: self.read(start, stop).values.astype(numpy_dtype, copy=False),
            (self.rows, self.columns),
            dtype,
            f"{self.name}.quantized",
            transposed=True,
            whole=self,
        )

    def scales(self) -> QuantizedPart:
        """The float32 scales as the graph sees them: [N], or [K / group_size, N] of groups."""
        return QuantizedPart(
            lambda start, stop: self.read(start, stop).scales,
            (self.rows,) if self.integer_scales else self._parameter_shape(),
            ir.DataType.FLOAT,
            f"{self.name}.scale",
            transposed=bool(self.group_size) and not self.integer_scales,
            whole=self,
        )

    def group_scales(self) -> QuantizedPart | None:
        """The integer scales as the graph sees them: UINT8 [K / group_size, N], or None."""
        if not self.integer_scales:
            return None
        return QuantizedPart(
            self._read_group_scales,
            self._parameter_shape(),
            ir.DataType.UINT8,
            f"{self.name}.group_scale",
            transposed=True,
            whole=self,
        )

    def zero_points(self) -> QuantizedPart | None:
        """The zero points, a scale or group each; None if symmetric.

        Typed as the values, UINT8 beside integer scales; float ones FLOAT.
        """
        if self.symmetric:
            return None
        kind = ir.DataType.UINT8 if self._wide_zero_points else ir.DataType.UINT4
        kind = ir.DataType.FLOAT if self.float_zeros else kind
        return QuantizedPart(
            self._read_zero_points,
            self._parameter_shape(),
            kind,
            f"{self.name}.zero_point",
            transposed=bool(self.group_size),
            whole=self,
        )

    def _read_zero_points(self, start: int, stop: int) -> Array:
        zero_points = self.read(start, stop).zero_points
        if zero_points is None:
            raise ValueError(f"{self.name}: an asymmetric weight was read without zero points")
        return zero_points if self._wide_zero_points else zero_points.astype(ml_dtypes.uint4)

    @property
    def _wide_zero_points(self) -> bool:
        return self.bits != 4 or self.integer_scales or self.float_zeros

    def _read_group_scales(self, start: int, stop: int) -> Array:
        scales = self.read(start, stop).group_scales
        if scales is None:
            raise ValueError(f"{self.name}: a weight was read without its integer scales")
        return scales

    def _parameter_shape(self) -> tuple[int, ...]:
        if not self.group_size:
            return (self.rows,)
        return (self.rows, self.columns // self.group_size)
