"""Writes quantized layers as their formats define it, and says what they stand for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from optc.importer.conversion.tensor import Tensor
from optc.importer.quantized.methods import quantized_weights
from optc.importer.safetensors import read_header

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
_KINDS = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint8): "U8",
}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def write(file: Path, tensors: Mapping[str, Array]) -> Path:
    """A safetensors file of any types."""
    header, data, at = {}, b"", 0
    for name, array in tensors.items():
        content = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _KINDS[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + len(content)],
        }
        data, at = data + content, at + len(content)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


def read(file: Path, tensors: Mapping[str, Array], **settings: Any) -> dict[str, Tensor]:
    """What a checkpoint of these tensors and settings holds."""
    return quantized_weights(read_header(write(file, tensors), every=True), settings)


def packed(values: Array, bits: int) -> npt.NDArray[np.int32]:
    """Unsigned values [..., n] in words of 32 bits, the first in the lowest bits, padded with 0."""
    each = 32 // bits
    missing = -values.shape[-1] % each
    padded = np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, missing)]).astype(np.uint64)
    parts = padded.reshape(*padded.shape[:-1], -1, each)
    shifts = np.arange(0, 32, bits, dtype=np.uint64)
    return (parts << shifts).sum(axis=-1).astype(np.uint32).view(np.int32)


def groups(rows: Float32, size: int, bits: int, *, symmetric: bool) -> tuple[Array, Array, Array]:
    """Unsigned values [N, K], scales float16 [N, G] and zero points [N, G] of rows."""
    x = rows.reshape(len(rows), -1, size)
    most, middle = (1 << bits) - 1, 1 << (bits - 1)
    if symmetric:
        scale = np.abs(x).max(axis=2) / (middle - 1)
        zero = np.full_like(scale, middle)
    else:
        low, high = np.minimum(x.min(axis=2), 0), np.maximum(x.max(axis=2), 0)
        scale = (high - low) / most
        zero = np.rint(-low / scale)
    scale = scale.astype(np.float16)
    q = np.rint(x / scale.astype(np.float32)[:, :, None]) + zero[:, :, None]
    return q.clip(0, most).reshape(rows.shape).astype(np.uint8), scale, zero.astype(np.int64)


def spread(values: Array, size: int) -> Float32:
    """Numbers of groups [N, G] for each column."""
    return np.repeat(values.astype(np.float32), size, axis=1)


def gptq_layer(
    rows: Float32, size: int, bits: int, *, symmetric: bool, offset: int = 1
) -> tuple[dict[str, Array], Float32]:
    """Tensors of GPTQ by the ends of their names, and the weight [N, K]."""
    q, scale, zero = groups(rows, size, bits, symmetric=symmetric)
    order = (np.arange(rows.shape[1]) // size).astype(np.int32)
    tensors = {
        "qweight": packed(q, bits).T,
        "qzeros": packed((zero - offset).T, bits),
        "scales": scale.T,
        "g_idx": order,
    }
    return tensors, (q - spread(zero, size)) * spread(scale, size)


def pack_quantized_layer(
    rows: Float32, size: int, bits: int, *, symmetric: bool
) -> tuple[dict[str, Array], Float32]:
    """Tensors of compressed-tensors' pack-quantized, and the weight [N, K]."""
    q, scale, zero = groups(rows, size, bits, symmetric=symmetric)
    tensors = {
        "weight_packed": packed(q, bits),
        "weight_scale": scale,
        "weight_shape": np.array(rows.shape, np.int64),
    }
    if not symmetric:
        tensors["weight_zero_point"] = packed(zero.T, bits).T
    return tensors, (q - spread(zero, size)) * spread(scale, size)


def e2m1_codes(values: Float32) -> npt.NDArray[np.uint8]:
    """The nearest codes of E2M1."""
    nearest = np.abs(np.abs(values)[..., None] - E2M1).argmin(axis=-1)
    return (nearest + 8 * (values < 0)).astype(np.uint8)


def e2m1_values(codes: Array) -> Float32:
    """What codes of E2M1 stand for."""
    return E2M1[codes & 7] * np.where(codes & 8, np.float32(-1), np.float32(1))


def pairs(codes: Array) -> npt.NDArray[np.uint8]:
    """Two codes a byte, the first in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)
