"""Initializers as packed engine weights (layouts: docs/normal-form.md), streamed tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights import packing
from optc.backends.tvm.weights.weights_file import Chunk, PackedWeight
from optc.errors import UnsupportedError
from optc.ir.quantized_rows import QuantizedPart, QuantizedTile
from optc.ir.weights import LazyWeight, as_lazy

#: Added to signed values so that the kernels see unsigned ones.
_OFFSETS = {ir.DataType.INT8: 128, ir.DataType.INT4: 8, ir.DataType.UINT8: 0, ir.DataType.UINT4: 0}


@dataclass(frozen=True)
class WeightParts:
    """The parts of a quantized weight seen as [K, N] (docs/normal-form.md).

    Attributes:
        values: [K, N] INT8, UINT8, INT4 or UINT4.
        scales: [N], or [K / group_size, N] of groups that have float scales.
        zero_points: A scale or group each; None if symmetric. FLOAT ones of groups lie
            between values.
        group_scales: UINT8 [K / group_size, N], integer scales beside those of the channels; None
            if there are none.
        bits: 8, 6, 5, 4, 3 or 2.
        group_size: Values along K that share a scale; 0 is per channel.
    """

    values: ir.TensorProtocol
    scales: ir.TensorProtocol
    zero_points: ir.TensorProtocol | None
    group_scales: ir.TensorProtocol | None
    bits: int
    group_size: int

    @property
    def float_zeros(self) -> bool:
        """True if zero points are floats."""
        zeros = self.zero_points
        return zeros is not None and ir.DataType(zeros.dtype) == ir.DataType.FLOAT

    def reader(self) -> Callable[[int, int], QuantizedTile]:
        """Reads values, scales and zero points of some rows; at once where they are computed."""
        rows = as_lazy(self.values, transposed=True)
        if isinstance(rows, QuantizedPart):
            return rows.whole.read
        grouped = bool(self.group_size)
        scales = as_lazy(self.scales, transposed=grouped and self.group_scales is None)
        zeros = None if self.zero_points is None else as_lazy(self.zero_points, transposed=grouped)
        integers = (
            None if self.group_scales is None else as_lazy(self.group_scales, transposed=True)
        )

        kind = np.float32 if self.float_zeros else np.uint8

        def read(start: int, stop: int) -> QuantizedTile:
            return QuantizedTile(
                rows.read_rows(start, stop).astype(np.int8),
                scales.read_rows(start, stop),
                None if zeros is None else zeros.read_rows(start, stop).astype(kind),
                None if integers is None else integers.read_rows(start, stop),
            )

        return read


def raw_weight(name: str, tensor: ir.TensorProtocol) -> PackedWeight:
    """A float32 tensor as it is."""

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        yield 0, np.ascontiguousarray(tensor.numpy(), np.float32)

    shape = tuple(int(d) for d in tensor.shape.numpy())
    return PackedWeight((Tensor(name, "float32", shape),), ((0, 1),), pack)


def table_weight(name: str, tensor: ir.TensorProtocol) -> PackedWeight:
    """An embedding table [V, D] by rows: float32, or the bits of bfloat16 as uint16."""
    rows = as_lazy(tensor)
    bfloat16 = rows.dtype == ir.DataType.BFLOAT16

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        tile = rows.read_rows(start, stop)
        yield 0, tile.view(np.uint16) if bfloat16 else tile.astype(np.float32, copy=False)

    table = Tensor(name, "uint16" if bfloat16 else "float32", rows.rows_shape)
    return PackedWeight((table,), tuple(rows.tiles()), pack)


def float_weight(name: str, tensor: ir.TensorProtocol, experts: int = 1) -> PackedWeight:
    """A matmul's weight, seen as [K, N], float32 or bfloat16, in blocks of 64 output channels; of
    experts [K, E*N], each of which begins with a block."""
    rows = as_lazy(tensor, transposed=True)
    k = rows.rows_shape[1]
    blocks, tiles = _in_blocks(rows, experts)
    bfloat16 = rows.dtype == ir.DataType.BFLOAT16
    if bfloat16:
        packed = Tensor(name, "uint16", (blocks, -(-k // 2), packing.BLOCK, 2))
    else:
        packed = Tensor(name, "float32", (blocks, k, packing.BLOCK))

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        tile = rows.read_rows(start, stop)
        if bfloat16:
            yield 0, packing.pack_bfloat16(tile.view(np.uint16))
        else:
            yield 0, packing.pack_float32(tile.astype(np.float32, copy=False))

    return PackedWeight((packed,), tiles, pack)


def expert_biases(name: str, tensor: ir.TensorProtocol, experts: int) -> PackedWeight:
    """The biases [E*N] of experts, as float32; each expert's begin with a block."""
    values = as_lazy(tensor)
    blocks, tiles = _in_blocks(values, experts)

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        yield 0, packing.pack_columns(values.read_rows(start, stop), np.float32)

    return PackedWeight((Tensor(name, "float32", (blocks * packing.BLOCK,)),), tiles, pack)


def integer_weight(name: str, parts: WeightParts, experts: int = 1) -> PackedWeight:
    """A quantized matmul's weight seen as [K, N], its scales and zero points; of experts [K, E*N],
    each of which begins with a block.

    With integer scales of groups it becomes int8 per channel (`QuantizedTile.as_int8`), whatever
    their bits and group size.

    Tensors: values u8 [N/64, Kp/4 or Kp/8, 64, 4], scales [N/64, G, 64] (float32 per channel,
    float16 with groups) and, if asymmetric, zero points u8 [N/64, G, 64]; instead of float zero
    points float16 minimums, what a value of 0 stands for.
    """
    rows, read = as_lazy(parts.values, transposed=True), parts.reader()
    k = rows.rows_shape[1]
    bits, group_size = parts.bits, parts.group_size
    asymmetric = parts.zero_points is not None
    offset = np.uint8(_OFFSETS[ir.DataType(rows.dtype)])
    if parts.group_scales is not None:
        bits, group_size, asymmetric = 8, 0, False
        offset = np.uint8(_OFFSETS[ir.DataType.INT8])
    blocks, tiles = _in_blocks(rows, experts)
    groups = -(-k // group_size) if group_size else 1
    steps = -(-k // packing.K_MULTIPLE) * packing.K_MULTIPLE * bits // 32
    scale_type = np.float16 if group_size else np.float32
    shape = (blocks, groups, packing.BLOCK)
    tensors = [
        Tensor(f"{name}.values", "uint8", (blocks, steps, packing.BLOCK, 4)),
        Tensor(f"{name}.scales", np.dtype(scale_type).name, shape),
    ]
    if asymmetric:
        kind = "minimums" if parts.float_zeros else "zeros"
        tensors.append(Tensor(f"{name}.{kind}", "float16" if parts.float_zeros else "uint8", shape))

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        tile = read(start, stop).as_int8()
        # wraps around: -128 is stored as 0 in 8 bits, -8 as 0 in 4
        yield 0, packing.pack_int(tile.values.view(np.uint8) + offset, bits)
        yield 1, packing.pack_columns(tile.scales, scale_type)
        if tile.zero_points is not None:
            if parts.float_zeros:
                yield 2, packing.pack_columns(-tile.zero_points * tile.scales, np.float16)
            else:
                yield 2, packing.pack_columns(tile.zero_points, np.uint8)

    return PackedWeight(tuple(tensors), tiles, pack)


def two_level_weight(name: str, parts: WeightParts, experts: int = 1) -> PackedWeight:
    """A weight of 2 to 6 bits seen as [K, N] whose groups have integer scales; of experts [K, E*N],
    each of which begins with a block.

    Tensors: values u8 [N/64, Kp*bits/32, 64, 4]; groups u8 [N/64, G, 2, 64], the integer scale s
    and the offset 128 - zero point, so that value * s + offset is an int8 weight + 128; scales
    float32 [N/64, 1, 64].

    Raises (when packed):
        UnsupportedError: A group leaves int8.
    """
    rows, read = as_lazy(parts.values, transposed=True), parts.reader()
    k = rows.rows_shape[1]
    blocks, tiles = _in_blocks(rows, experts)
    groups = -(-k // parts.group_size)
    steps = -(-k // packing.K_MULTIPLE) * packing.K_MULTIPLE * parts.bits // 32
    tensors = (
        Tensor(f"{name}.values", "uint8", (blocks, steps, packing.BLOCK, 4)),
        Tensor(f"{name}.groups", "uint8", (blocks, groups, 2, packing.BLOCK)),
        Tensor(f"{name}.scales", "float32", (blocks, 1, packing.BLOCK)),
    )

    def pack(start: int, stop: int) -> Iterator[Chunk]:
        tile = read(start, stop)
        yield 0, packing.pack_int(tile.values.view(np.uint8), parts.bits)
        yield 1, packing.pack_groups(*_int8_groups(tile, parts.bits, name))
        yield 2, packing.pack_columns(tile.scales, np.float32)

    return PackedWeight(tensors, tiles, pack)


def _in_blocks(rows: LazyWeight, experts: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Blocks of 64 output channels, and the ranges of rows that are packed one after the other.

    Packing pads the last block of a range, so that an expert's last range ends with it.
    """
    n = rows.rows_shape[0] // experts
    blocks = experts * -(-n // packing.BLOCK)
    if experts == 1 or n % packing.BLOCK == 0:
        return blocks, tuple(rows.tiles(packing.BLOCK))
    one = LazyWeight(rows.read_rows, (n, *rows.rows_shape[1:]), ir.DataType(rows.dtype), "")
    first = [expert * n for expert in range(experts)]
    return blocks, tuple((e + a, e + b) for e in first for a, b in one.tiles(packing.BLOCK))


def _int8_groups(tile: QuantizedTile, bits: int, name: str) -> tuple[packing.U8, packing.U8]:
    """Integer scales and offsets u8 [n, G] of a tile."""
    if tile.group_scales is None or tile.zero_points is None:
        raise ValueError(f"{name}: a weight was read without integer scales or zero points")
    scales = tile.group_scales.astype(np.int32)
    offsets = 128 - tile.zero_points.astype(np.int32)
    if offsets.min() < 0 or (offsets + ((1 << bits) - 1) * scales).max() > 255:
        raise UnsupportedError(
            "value * integer scale - zero point of a group is not within -128..127",
            where=f"tvm backend, weight {name}",
            hint="docs/normal-form.md says what integer scales may be",
        )
    return scales.astype(np.uint8), offsets.astype(np.uint8)
