"""KV pools in NumPy: the values that each type represents, and the kernels' layout of them."""

from __future__ import annotations

import numpy as np

from optc.backends.tvm.kv_layout import POOL_TYPES, TILE
from tests.backends.tvm.kernel_cases import Array

KV_TYPES = tuple(POOL_TYPES)


def bf16_bits(values: Array) -> Array:
    """The nearest bfloat16's bits, ties to even, u16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def int8_codes(values: Array) -> tuple[Array, Array]:
    """Codes value + 128 as u8, and scales [..., 1]."""
    scale = np.abs(values).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(127)
    scale[scale == 0] = 1
    return (np.rint(values / scale) + 128).astype(np.uint8), scale


def represented(values: Array, dtype: str) -> Array:
    """float32 values [..., d] as a pool of ``dtype`` gives them back."""
    if dtype == "float32":
        return values
    if dtype == "bfloat16":
        return bf16_value(bf16_bits(values))
    codes, scale = int8_codes(values)
    return (codes.astype(np.float32) - 128) * scale


def garbage(dtype: str, tiles: int, heads: int, dim: int) -> Array:
    """A pool of set bits: no numbers, and codes and scales that are none."""
    kind = POOL_TYPES[dtype]
    shape = (tiles, heads, kind.width(dim) * np.dtype(kind.element).itemsize)
    return np.full(shape, 255, np.uint8).view(kind.element)


def put(pool: Array, kind: str, dtype: str, slots: Array, values: Array) -> None:
    """Store values [n, Hkv, d] as keys (``kind`` k) or values (v) at ``slots`` [n]."""
    dim = values.shape[2]
    tile, offset = slots // TILE, slots % TILE
    heads = np.arange(values.shape[1])
    at = (tile[:, None, None], heads[:, None], _positions(kind, dtype, dim)[offset][:, None])
    if dtype == "int8":
        pool[at], scale = int8_codes(values)
        pool[..., TILE * dim :].view(np.float32)[tile, :, offset] = scale[..., 0]
    else:
        pool[at] = values if dtype == "float32" else bf16_bits(values)


def stored(pool: Array, kind: str, dtype: str, dim: int) -> Array:
    """What the pool represents, by slot: float32 [slots, Hkv, d]."""
    elements = pool[..., _positions(kind, dtype, dim)]  # [tiles, Hkv, 16, d]
    if dtype == "int8":
        scales = pool[..., TILE * dim :].view(np.float32)
        values = (elements.astype(np.float32) - 128) * scales[..., None]
    else:
        values = elements if dtype == "float32" else bf16_value(elements)
    return values.swapaxes(1, 2).reshape(-1, pool.shape[1], dim)


def _positions(kind: str, dtype: str, dim: int) -> Array:
    """Element [16, d] of a tile: words [d / pack, 16] of keys, [16 / pack, d] of values."""
    pack = POOL_TYPES[dtype].pack
    token, d = np.arange(TILE)[:, None], np.arange(dim)
    if kind == "k":
        return (d // pack * TILE + token) * pack + d % pack
    return (token // pack * dim + d) * pack + token % pack
