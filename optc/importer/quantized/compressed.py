"""compressed-tensors: the formats of ``format`` in config.json, told by a layer's own tensors.

| format | stored values | ``weight_scale`` | weight |
|---|---|---|---|
| pack-quantized | ``weight_packed`` i32 [N, K*b/32] | [N, G] | (q - z) * s |
| int-quantized | ``weight`` i8 [N, K] | [N, G], [N, 1] or [1] | (q - z) * s |
| float-quantized | ``weight`` E4M3 [N, K] | [N, 1], [1] or by blocks | code * s |
| nvfp4-pack-quantized | ``weight_packed`` u8 [N, K/2] | E4M3 [N, K/16] | E2M1 * s / g |
| mxfp4-pack-quantized | ``weight_packed`` u8 [N, K/2] | u8 [N, K/32] | E2M1 * 2^(s - 127) |

Packed integers are stored plus 2^(b-1), the first in the lowest bits; their zero points
``weight_zero_point`` i32 [N*b/32, G] likewise, packed along N; ``weight_shape`` is [N, K], and
``weight_g_idx`` i32 [K] the group of each input; g is ``weight_global_scale``. Source:
compressed-tensors, ``compressors/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError, UnsupportedError
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.quantized.decoding import e2m1, e8m0
from optc.importer.quantized.float_weights import eight_bits, nvfp4
from optc.importer.quantized.parts import Parts, numbers, scalar, weights
from optc.importer.quantized.tensors import DecodedTensor, grid_or_decoded, unpacked
from optc.importer.safetensors import StoredTensor
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile

FORMATS = (
    "dense",
    "float-quantized",
    "int-quantized",
    "mixed-precision",
    "mxfp4-pack-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "pack-quantized",
)
_BITS = (4, 8)
_ENDS = {
    f".{end}": ".weight"
    for end in (
        "weight",
        "weight_packed",
        "weight_scale",
        "weight_zero_point",
        "weight_shape",
        "weight_g_idx",
        "weight_global_scale",
    )
}
#: Largest magnitude of E2M1 values times 2, which then are integers.
_DOUBLED = np.float32(2)


def compressed_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a checkpoint of compressed-tensors.

    Raises:
        UnsupportedError: In another format, or with transforms that are not part of the weights.
        InputError: Tensors are missing, or do not fit.
    """
    where = "config.json: quantization_config"
    stated = str(settings.get("format", "unknown"))
    if stated not in FORMATS:
        raise UnsupportedError(
            f"format {stated} of compressed-tensors", where=where, hint=f"optc reads {FORMATS}"
        )
    if settings.get("transform_config"):
        raise UnsupportedError(
            "compressed-tensors with transform_config, whose rotations are no weights", where=where
        )
    return weights(tensors, _ENDS, "weight_scale", _weight)


def _weight(parts: Parts) -> Tensor:
    packed = parts.get("weight_packed")
    if packed is None:
        stored = parts.one("weight", "I8", "F8_E4M3", axes=2)
        return _integers(parts) if stored.dtype == "I8" else eight_bits(parts, None, "fp8")
    if packed.dtype == "I32":
        return _packed(parts)
    if "weight_global_scale" in parts.found:
        divisor = scalar(parts.one("weight_global_scale"))
        return nvfp4(parts, "weight_packed", lambda scales: scales / divisor)
    return _mxfp4(parts)


def _integers(parts: Parts) -> Tensor:
    codes = parts.one("weight", axes=2)
    n, k = codes.shape
    scales = _by_row(parts, "weight_scale", n)
    groups = scales.shape[1]
    zeros = None
    if "weight_zero_point" in parts.found:
        zeros = _by_row(parts, "weight_zero_point", n).astype(np.int16)
        zeros = zeros if zeros.any() else None

    def read(start: int, stop: int) -> QuantizedTile:
        values, rows = codes.read_stored(((start, stop), (0, k))), slice(start, stop)
        if zeros is None:
            return QuantizedTile(values, _flat(scales[rows]), None)
        wide = (values.astype(np.int16) + 128).astype(np.uint8)
        return QuantizedTile(wide, scales[rows], (zeros[rows] + 128).astype(np.uint8))

    size = 0 if groups == 1 and zeros is None else parts.divided(k, groups, "weight_scale")
    rows = QuantizedRows(read, n, k, 8, size, zeros is None, parts.name)
    return grid_or_decoded("compressed-tensors int8", rows, parts.leaves)


def _packed(parts: Parts) -> Tensor:
    codes = parts.one("weight_packed", axes=2)
    shape = parts.shaped("weight_shape", (2,), "I64", "I32").read_stored().tolist()
    n, k = int(shape[0]), int(shape[1])
    bits = next((b for b in _BITS if codes.shape == (n, -(-k * b // 32))), None)
    if bits is None:
        raise UnsupportedError(
            f"values [{n}, {k}] packed to {list(codes.shape)}",
            where=codes.where,
            hint=f"optc reads {_BITS} bits",
        )
    scales = parts.one("weight_scale", axes=2)
    groups = scales.shape[1]
    zeros = _packed_zeros(parts, bits, n, groups)
    middle = 1 << (bits - 1)

    def values(start: int, stop: int) -> npt.NDArray[np.uint8]:
        words = codes.read_stored(((start, stop), (0, codes.shape[1])))
        return unpacked(words, bits)[:, :k]

    def read(start: int, stop: int) -> QuantizedTile:
        found, scale = values(start, stop), numbers(scales, ((start, stop), (0, groups)))
        if zeros is None:
            signed = (found.astype(np.int16) - middle).astype(np.int8)
            return QuantizedTile(signed, scale, None)
        return QuantizedTile(found, scale, zeros[start:stop])

    order = parts.get("weight_g_idx")
    size = parts.divided(k, groups, "weight_scale")
    rows = QuantizedRows(read, n, k, bits, size, zeros is None, parts.name)
    label = f"compressed-tensors int{bits}"
    if order is not None:
        index = parts.shaped("weight_g_idx", (k,), "I32", "I64").read_stored().astype(np.int64)
        if not np.array_equal(index, np.arange(k) // size):
            return _by_index(parts, rows, index, f"{label} with g_idx")
    return grid_or_decoded(label, rows, parts.leaves)


def _by_index(
    parts: Parts, rows: QuantizedRows, index: npt.NDArray[np.int64], label: str
) -> Tensor:
    """A weight of which every input says in which group it is."""
    groups = rows.columns // rows.group_size
    if index.min() < 0 or index.max() >= groups:
        raise InputError(
            f"an input is in group {int(index.max())} of {groups}",
            where=parts.one("weight_g_idx").where,
            hint="the checkpoint is damaged",
        )

    def decode(start: int, stop: int) -> Float32:
        tile = rows.read(start, stop)
        found = tile.values.astype(np.float32)
        if tile.zero_points is not None:
            found -= tile.zero_points.astype(np.float32)[:, index]
        return found * tile.scales[:, index]

    return DecodedTensor(parts.name, label, (rows.rows, rows.columns), decode, parts.leaves)


def _packed_zeros(parts: Parts, bits: int, n: int, groups: int) -> npt.NDArray[np.uint8] | None:
    """Zero points [N, G] of unsigned values; None where there are none, or all are the middle."""
    stored = parts.get("weight_zero_point")
    if stored is None:
        return None
    if stored.dtype == "I8":
        found = stored.read_stored().astype(np.int16).reshape(n, groups) + (1 << (bits - 1))
        zeros = found.astype(np.uint8)
    else:
        words = parts.shaped("weight_zero_point", (-(-n * bits // 32), groups), "I32")
        zeros = unpacked(np.ascontiguousarray(words.read_stored().T), bits)[:, :n].T
    return zeros if (zeros != 1 << (bits - 1)).any() else None


def _mxfp4(parts: Parts) -> Tensor:
    """Doubled, the values are whole numbers, and a scale is a power of two: an int8 grid."""
    codes = parts.one("weight_packed", "U8", axes=2)
    n, k = codes.shape[0], 2 * codes.shape[1]
    scales = parts.shaped("weight_scale", (n, k // 32), "U8", "F8_E8M0")

    def read(start: int, stop: int) -> QuantizedTile:
        rows = (start, stop)
        doubled = e2m1(codes.read_stored((rows, (0, k // 2)))) * _DOUBLED
        scale = e8m0(scales.read_stored((rows, (0, k // 32)))) / _DOUBLED
        return QuantizedTile(doubled.astype(np.int8), scale, None)

    rows = QuantizedRows(read, n, k, 8, 32, True, parts.name)
    return grid_or_decoded("mxfp4", rows, parts.leaves)


def _by_row(parts: Parts, end: str, n: int) -> Float32:
    """Scales or zero points as [N, G], of the whole, of channels or of groups."""
    stored = parts.one(end)
    found = stored.read_stored().astype(np.float32) if stored.dtype == "I8" else numbers(stored)
    if found.size == 1:
        return np.full((n, 1), found.reshape(-1)[0], np.float32)
    if found.shape[0] != n or found.ndim > 2:
        raise InputError(
            f"the tensor has shape {list(found.shape)} beside {n} rows",
            where=stored.where,
            hint="the checkpoint is damaged",
        )
    return found.reshape(n, -1)


def _flat(scales: Float32) -> Float32:
    """Of channels [n], else as they are."""
    return scales[:, 0] if scales.shape[1] == 1 else scales
