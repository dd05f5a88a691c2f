"""Integer weights as ``com.microsoft::MatMulNBits`` takes them: blocks of K, unsigned values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import Array, LazyWeight

#: Block lengths of a weight that is quantized by whole channels, the best first.
_CHANNEL_BLOCKS = (128, 64, 32, 16)


class PackedTile(NamedTuple):
    """Some rows of a packed weight; n rows, G blocks of K.

    Attributes:
        values: uint8 [n, G, block * bits / 8]; of two 4-bit values in a byte the first is low.
        scales: float32 [n, G].
        zero_points: uint8 [n, ceil(G * bits / 8)], packed as the values, or float32 [n, G]; None if
            symmetric, where the zero point is 8 or 128.
    """

    values: Array
    scales: Array
    zero_points: Array | None


@dataclass(frozen=True)
class PackedRows:
    """A quantized weight [N, K] in the operator's layout, read by rows; nothing is kept.

    Attributes:
        source: The weight.
        block: Values that share a scale: its groups, or parts of whole channels.
    """

    source: QuantizedRows
    block: int

    @classmethod
    def of(cls, source: QuantizedRows) -> PackedRows:
        """The weight in its own groups; whole channels in the largest blocks that fill K."""
        blocks = [block for block in _CHANNEL_BLOCKS if source.columns % block == 0]
        return cls(source, source.group_size or (blocks or _CHANNEL_BLOCKS[-1:])[0])

    @property
    def bits(self) -> int:
        """4 or 8."""
        return self.source.bits

    @property
    def blocks(self) -> int:
        """G, the blocks of a row; the last one is padded where K does not fill it."""
        return -(-self.source.columns // self.block)

    def read(self, start: int, stop: int) -> PackedTile:
        """Rows [start, stop) in the operator's layout."""
        tile = self.source.read(start, stop)
        rows = stop - start
        values = tile.values
        if self.source.symmetric:
            offset = 1 << (self.bits - 1)
            values = (values.astype(np.int16) + offset).astype(np.uint8)
        missing = self.blocks * self.block - self.source.columns
        if missing:
            values = np.pad(values, ((0, 0), (0, missing)), constant_values=1 << (self.bits - 1))
        scales = np.broadcast_to(tile.scales.reshape(rows, -1), (rows, self.blocks))
        return PackedTile(
            _packed(values, self.bits).reshape(rows, self.blocks, -1),
            np.ascontiguousarray(scales, np.float32),
            self._packed_zeros(tile.zero_points),
        )

    def _packed_zeros(self, zero_points: Array | None) -> Array | None:
        if zero_points is None or self.source.float_zeros:
            return zero_points
        return _packed(zero_points.reshape(len(zero_points), -1), self.bits)

    def parts(self) -> tuple[PackedPart, ...]:
        """Values, scales and, if there are any, zero points as tensors of the graph."""
        n, count = self.source.rows, self.blocks
        shapes = {
            "quantized": ((n, count, self.block * self.bits // 8), ir.DataType.UINT8),
            "scale": ((n, count), ir.DataType.FLOAT),
            "zero_point": ((n, -(-count * self.bits // 8)), ir.DataType.UINT8),
        }
        if self.source.float_zeros:
            shapes["zero_point"] = ((n, count), ir.DataType.FLOAT)
        names = list(shapes)[: 2 if self.source.symmetric else 3]
        return tuple(
            PackedPart(self, index, shapes[name][0], shapes[name][1], f"{self.source.name}.{name}")
            for index, name in enumerate(names)
        )


class PackedPart(LazyWeight):
    """One of the tensors of a packed weight; `packed` computes all of them at once.

    Args:
        packed: The weight.
        index: Which field of `PackedTile` it is.
        shape: Of the whole tensor.
        dtype: Its element type.
        name: Its name.
    """

    def __init__(
        self,
        packed: PackedRows,
        index: int,
        shape: tuple[int, ...],
        dtype: ir.DataType,
        name: str,
    ) -> None:
        self.packed = packed
        self.index = index
        super().__init__(self._read_part, shape, dtype, name)

    def _read_part(self, start: int, stop: int) -> Array:
        part = self.packed.read(start, stop)[self.index]
        if part is None:
            raise ValueError(f"{self.name}: a symmetric weight has no zero points")
        return part


def _packed(values: Array, bits: int) -> Array:
    """Rows of values, one a byte, with two 4-bit values in a byte; an odd last one alone."""
    if bits == 8:
        return np.ascontiguousarray(values)
    if values.shape[1] % 2:
        values = np.pad(values, ((0, 0), (0, 1)))
    packed: Array = values[:, ::2] | (values[:, 1::2] << 4)
    return packed
