"""`QuantizedRows`: values, scales and zero points of one weight, computed together tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array, LazyWeight


class QuantizedTile(NamedTuple):
    """Some rows of a quantized weight; n rows, K columns, G groups.

    Attributes:
        values: [n, K] int8 (symmetric) or uint8 (asymmetric), one value a byte at any bit width.
        scales: [n] float32 per channel, or [n, G].
        zero_points: uint8 of the shape of ``scales``; None if symmetric.
    """

    values: Array
    scales: Array
    zero_points: Array | None


@dataclass(frozen=True)
class QuantizedRows:
    """A quantized weight [N, K] that is read by rows; nothing is kept.

    Attributes:
        read: ``read(start, stop)`` quantizes these rows.
        rows: N.
        columns: K.
        bits: 8 or 4.
        group_size: Columns that share a scale; 0 is all of them (per channel).
        symmetric: No zero points, and signed values.
        name: Of the float weight, for messages and the names of the three parts.
    """

    read: Callable[[int, int], QuantizedTile]
    rows: int
    columns: int
    bits: int
    group_size: int
    symmetric: bool
    name: str

    def values(self) -> LazyWeight:
        """The values as the graph sees them: [K, N] INT8, UINT8, INT4 or UINT4."""
        kinds = {
            (8, True): (ir.DataType.INT8, np.dtype(np.int8)),
            (8, False): (ir.DataType.UINT8, np.dtype(np.uint8)),
            (4, True): (ir.DataType.INT4, np.dtype(ml_dtypes.int4)),
            (4, False): (ir.DataType.UINT4, np.dtype(ml_dtypes.uint4)),
        }
        dtype, numpy_dtype = kinds[self.bits, self.symmetric]
        return LazyWeight(
            lambda start, stop: self.read(start, stop).values.astype(numpy_dtype, copy=False),
            (self.rows, self.columns),
            dtype,
            f"{self.name}.quantized",
            transposed=True,
            quantized=self,
        )

    def scales(self) -> LazyWeight:
        """The scales as the graph sees them: [N], or [K / group_size, N]; float32."""
        return LazyWeight(
            lambda start, stop: self.read(start, stop).scales,
            self._parameter_shape(),
            ir.DataType.FLOAT,
            f"{self.name}.scale",
            transposed=bool(self.group_size),
            quantized=self,
        )

    def zero_points(self) -> LazyWeight | None:
        """The zero points, shaped as the scales and typed as the values; None if symmetric."""
        if self.symmetric:
            return None
        kind = ir.DataType.UINT8 if self.bits == 8 else ir.DataType.UINT4
        return LazyWeight(
            self._read_zero_points,
            self._parameter_shape(),
            kind,
            f"{self.name}.zero_point",
            transposed=bool(self.group_size),
            quantized=self,
        )

    def _read_zero_points(self, start: int, stop: int) -> Array:
        zero_points = self.read(start, stop).zero_points
        if zero_points is None:
            raise ValueError(f"{self.name}: an asymmetric weight was read without zero points")
        return zero_points if self.bits == 8 else zero_points.astype(ml_dtypes.uint4)

    def _parameter_shape(self) -> tuple[int, ...]:
        if not self.group_size:
            return (self.rows,)
        return (self.rows, self.columns // self.group_size)
