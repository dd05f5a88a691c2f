"""Weights in the types of GGUF: the same integers where a type has them.

w are rows of K columns, in blocks of 32; d and m float16.

| the engine's grid | type | |
|---|---|---|
| int8 symmetric, any group | Q8_0 | q d |
| int4 symmetric | Q4_0 | q d |
| 2 to 4 bits asymmetric, integer scales too | Q4_1 | q d + m, m = - zero point * d |
| 5 and 6 bits with integer scales | Q8_0 | the int8 that engines compute |
| 8 bits asymmetric, or K not in blocks | F16 | |
| bfloat16, float32 | BF16, F32 | |

Integers are never changed; d and m are the engine's scales rounded to float16, which those of
groups are already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.compiling.export.parameters import Weight, shape_of
from optc.errors import UnsupportedError
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile, dequantize_rows
from optc.ir.weights import TILE_ELEMENTS

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]
#: Values that share a scale in all types here.
BLOCK = 32


@dataclass
class Loss:
    """The error of the written weights against the engine's.

    Attributes:
        squared: Sum of squared errors.
        total: Of squared weights.
    """

    squared: float = 0.0
    total: float = 0.0

    @property
    def relative(self) -> float:
        """Root mean square of the errors by that of the weights."""
        return float(np.sqrt(self.squared / self.total)) if self.total else 0.0

    def add(self, written: Float32, wanted: Float32) -> None:
        """Count some rows."""
        self.squared += float(np.square(written - wanted, dtype=np.float64).sum())
        self.total += float(np.square(wanted, dtype=np.float64).sum())


def type_of(weight: Weight) -> str:
    """The type that a weight is written in, in ggml's words."""
    if not isinstance(weight, QuantizedRows):
        narrow = weight.dtype == ir.DataType.BFLOAT16 and len(weight.rows_shape) > 1
        return "BF16" if narrow else "F32"
    if weight.columns % BLOCK or weight.group_size % BLOCK:
        return "F16"
    if weight.symmetric:
        return "Q8_0" if weight.bits == 8 else "Q4_0"
    if weight.bits <= 4:
        return "Q4_1"
    return "Q8_0" if weight.integer_scales else "F16"


def pieces(weight: Weight, kind: str, name: str, loss: Loss) -> Iterator[Bytes]:
    """The bytes of a weight in its type, some rows at a time; what is lost is counted.

    Raises:
        UnsupportedError: A scale is beyond float16.
    """
    shape = shape_of(weight)
    step = max(1, TILE_ELEMENTS // int(np.prod(shape[1:], dtype=np.int64)))
    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        if not isinstance(weight, QuantizedRows):
            rows = np.asarray(weight.read_rows(start, stop))
            kept = rows if kind == "BF16" else rows.astype(np.float32)
            yield np.ascontiguousarray(kept).view(np.uint8).reshape(stop - start, -1)
            continue
        tile = weight.read(start, stop)
        wanted = dequantize_rows(tile, weight.group_size)
        written = _written(tile, kind, wanted, name)
        loss.add(_read_back(written, kind), wanted)
        yield written


def _written(tile: QuantizedTile, kind: str, wanted: Float32, name: str) -> Bytes:
    n, columns = tile.values.shape
    if kind == "F16":
        return _halves(wanted, name).view(np.uint8).reshape(n, -1)
    if kind == "Q8_0":
        tile = tile.as_int8()
    blocks = tile.values.reshape(-1, BLOCK)
    scales, minimums = _scales(tile, columns // BLOCK)
    heads = [_halves(scales, name)] + ([_halves(minimums, name)] if kind == "Q4_1" else [])
    if kind == "Q8_0":
        body = blocks.view(np.uint8)
    else:
        codes = (blocks + np.int8(8)).view(np.uint8) if kind == "Q4_0" else blocks
        body = codes[:, : BLOCK // 2] | (codes[:, BLOCK // 2 :] << np.uint8(4))
    parts = [*(head.reshape(-1, 1).view(np.uint8) for head in heads), body]
    return np.concatenate(parts, axis=1).reshape(n, -1)


def _scales(tile: QuantizedTile, blocks: int) -> tuple[Float32, Float32]:
    """Scale and minimum of each block, [n, blocks]."""
    n = len(tile.values)
    scales = tile.scales.reshape(n, -1).astype(np.float32)
    zeros = tile.zero_points
    minimums = np.zeros_like(scales)
    if zeros is not None:
        minimums = -scales * zeros.reshape(n, -1).astype(np.float32)
    if tile.group_scales is not None:
        scales = scales * tile.group_scales.astype(np.float32)
    found = (np.repeat(one, blocks // one.shape[1], axis=1) for one in (scales, minimums))
    return next(found), next(found)


def _halves(values: Float32, name: str) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise UnsupportedError(
            "a scale is beyond the range of float16, in which GGUF stores scales",
            where=name,
            hint="export it with --format compressed-tensors",
        )
    return halves


def _read_back(written: Bytes, kind: str) -> Float32:
    """The values that a reader of GGUF gets from the bytes, by the gguf package."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    found: Float32 = dequantize(written, GGMLQuantizationType[kind])
    return found
