"""KV pools in NumPy: the values that each type represents, and the kernels' layout of them."""

from __future__ import annotations

import numpy as np

from optc.backends.tvm.kv_layout import POOL_TYPES, TILE
from tests.backends.tvm.kernel_cases import Array
from tests.support import oracle

KV_TYPES = tuple(POOL_TYPES)
#: Narrow floats.
FLOATS = ("bfloat16", "float16")


def taken_dim(dtype: str, dim: int) -> int:
    """The next dimension from ``dim`` on that pools of a type take."""
    return -(-dim // 32) * 32 if dtype == "int4" else dim


def bf16_bits(values: Array) -> Array:
    """The nearest bfloat16's bits, ties to even, u16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _bits(values: Array, dtype: str) -> Array:
    """The bits of a narrow float; float16 is finite."""
    if dtype == "bfloat16":
        return bf16_bits(values)
    return np.clip(values, -65504, 65504).astype(np.float16).view(np.uint16)


def _value(bits: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        return bf16_value(bits)
    return np.ascontiguousarray(bits).view(np.float16).astype(np.float32)


def int8_codes(values: Array) -> tuple[Array, Array]:
    """Codes value + 128 as u8, and scales [..., 1]."""
    scale = np.abs(values).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(127)
    scale[scale == 0] = 1
    return (np.rint(values / scale) + 128).astype(np.uint8), scale


def represented(values: Array, dtype: str) -> Array:
    """float32 values [..., d] as a pool of ``dtype`` gives them back."""
    if dtype == "float32":
        return values
    if dtype in FLOATS:
        return _value(_bits(values, dtype), dtype)
    if dtype == "int4":
        return oracle.represented(values, "int4")
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
    if dtype == "int4":
        _put_int4(pool, kind, (tile, offset), values)
        return
    heads = np.arange(values.shape[1])
    at = (tile[:, None, None], heads[:, None], _positions(kind, dtype, dim)[offset][:, None])
    if dtype == "int8":
        pool[at], scale = int8_codes(values)
        pool[..., TILE * dim :].view(np.float32)[tile, :, offset] = scale[..., 0]
    else:
        pool[at] = values if dtype == "float32" else _bits(values, dtype)


def stored(pool: Array, kind: str, dtype: str, dim: int) -> Array:
    """What the pool represents, by slot: float32 [slots, Hkv, d]."""
    if dtype == "int4":
        return _stored_int4(pool, kind, dim)
    elements = pool[..., _positions(kind, dtype, dim)]  # [tiles, Hkv, 16, d]
    if dtype == "int8":
        scales = pool[..., TILE * dim :].view(np.float32)
        values = (elements.astype(np.float32) - 128) * scales[..., None]
    else:
        values = elements if dtype == "float32" else _value(elements, dtype)
    return values.swapaxes(1, 2).reshape(-1, pool.shape[1], dim)


def _put_int4(pool: Array, kind: str, at: tuple[Array, Array], values: Array) -> None:
    """Codes in pairs of dimensions 16 apart, as int8 of half as many; groups; bfloat16 scales."""
    tile, offset = at
    codes, groups, step = oracle.int4_codes(values)
    n, heads, dim = values.shape
    pairs = codes.reshape(n, heads, dim // 32, 2, 16)
    packed = (pairs[:, :, :, 0] | pairs[:, :, :, 1] << 4).reshape(n, heads, dim // 2)
    head = np.arange(heads)
    place = _positions(kind, "int4", dim // 2)[offset][:, None]
    pool[tile[:, None, None], head[:, None], place] = packed
    group = TILE * dim // 2 + np.arange(dim // 16) * TILE
    place = group + offset[:, None, None]
    pool[tile[:, None, None], head[:, None], place] = groups[..., 0] - 1 + groups[..., 1] * 16
    scales = pool[..., TILE * dim * 9 // 16 :].view(np.uint16)
    scales[tile, :, offset] = bf16_bits(step[..., 0])


def _stored_int4(pool: Array, kind: str, dim: int) -> Array:
    packed = pool[..., _positions(kind, "int4", dim // 2)]  # [tiles, Hkv, 16, d / 2]
    halves = packed.reshape(*packed.shape[:-1], dim // 32, 1, 16)
    codes = np.concatenate([halves & 15, halves >> 4], axis=-2).reshape(*packed.shape[:-1], dim)
    groups = pool[..., TILE * dim // 2 : TILE * dim * 9 // 16]
    by_token = groups.reshape(*pool.shape[:2], dim // 16, TILE).swapaxes(2, 3)
    integers = oracle.int4_integers(codes, np.stack([(by_token & 15) + 1, by_token >> 4], axis=-1))
    scales = bf16_value(pool[..., TILE * dim * 9 // 16 :].view(np.uint16))
    values = integers.astype(np.float32) * scales[..., None]
    return values.swapaxes(1, 2).reshape(-1, pool.shape[1], dim)


def _positions(kind: str, dtype: str, dim: int) -> Array:
    """Element [16, d] of a tile: words [d / pack, 16] of keys, [16 / pack, d] of values."""
    pack = POOL_TYPES[dtype].pack
    token, d = np.arange(TILE)[:, None], np.arange(dim)
    if kind == "k":
        return (d // pack * TILE + token) * pack + d % pack
    return (token // pack * dim + d) * pack + token % pack
