from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.copy_kv import CopyKV
from optc.backends.tvm.kernels.pools import KVShape
from optc.backends.tvm.kernels.rotary_kv import Rotary, RotaryKV, WriteKV
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run

EPSILON = 1e-6
ROWS, TILES = 7, 4


def rotated(heads: Array, angles: Array, interleaved: bool) -> Array:
    """float64 oracle; heads [T,n,d], angles [T,r/2]."""
    half = angles.shape[1]
    out = heads.astype(np.float64)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


def normed(heads: Array, scale: Array) -> Array:
    heads = heads.astype(np.float64)
    return heads / np.sqrt(np.square(heads).mean(-1, keepdims=True) + EPSILON) * scale


def by_slot(k_pool: Array, v_pool: Array) -> tuple[Array, Array]:
    """Pools as [slots, Hkv, d]."""
    keys, values = k_pool.transpose(0, 3, 1, 2), v_pool.transpose(0, 2, 1, 3)
    return keys.reshape(-1, *keys.shape[2:]), values.reshape(-1, *values.shape[2:])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "key_dim", "value_dim", "rotary_dim", "interleaved", "norm"),
    [
        (3, 1, 64, 64, 64, False, False),
        (4, 2, 24, 40, 16, False, True),
        (4, 2, 80, 80, 32, True, True),
        (2, 2, 16, 16, 0, False, False),
    ],
)
def test_rotary_kv(
    target: str,
    heads: int,
    kv_heads: int,
    key_dim: int,
    value_dim: int,
    rotary_dim: int,
    interleaved: bool,
    norm: bool,
) -> None:
    rng = np.random.default_rng(key_dim)
    q, k, v = (
        rng.standard_normal((ROWS, n, d)).astype(np.float32)
        for n, d in ((heads, key_dim), (kv_heads, key_dim), (kv_heads, value_dim))
    )
    angles = rng.uniform(-7, 7, (ROWS, rotary_dim // 2)).astype(np.float32)
    q_scale, k_scale = rng.standard_normal((2, key_dim)).astype(np.float32)
    slots = rng.permutation(TILES * 16)[: 2 * ROWS].reshape(2, ROWS).astype(np.int32)
    slots[1, 3] = -1
    config = RotaryKV(
        heads, kv_heads, key_dim, value_dim, rotary_dim, interleaved, 1, 2, norm, norm, EPSILON
    )
    arrays = run(
        config,
        isa_named(target),
        np.concatenate([a.reshape(ROWS, -1) for a in (q, k, v)], axis=1),
        *([np.cos(angles), np.sin(angles)] if rotary_dim else []),
        *([q_scale, k_scale] if norm else []),
        slots,
        blank(TILES, kv_heads, key_dim, 16),
        blank(TILES, kv_heads, 16, value_dim),
        blank(ROWS, heads * key_dim),
    )
    keys, values = by_slot(*arrays[-3:-1])
    if norm:
        q, k = normed(q, q_scale), normed(k, k_scale)
    out = arrays[-1].reshape(q.shape)
    assert np.abs(out - rotated(q, angles, interleaved)).max() < 3e-6
    written = slots[1] >= 0
    expected = rotated(k, angles, interleaved)[written]
    assert np.abs(keys[slots[1][written]] - expected).max() < 3e-6
    np.testing.assert_array_equal(values[slots[1][written]], v[written])
    rest = np.delete(np.arange(TILES * 16), slots[1][written])
    assert np.isnan(keys[rest]).all()
    assert np.isnan(values[rest]).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_and_write_alone_equal_the_fused_kernel(target: str, interleaved: bool) -> None:
    isa, rng = isa_named(target), np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 60, 2 * 40)).astype(np.float32)  # 60 rows go parallel
    angles = rng.uniform(-3, 3, (60, 12)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    slots = rng.permutation(64)[None, :60].astype(np.int32)
    pools = (np.zeros((4, 2, 40, 16), np.float32), np.zeros((4, 2, 16, 40), np.float32))
    fused = run(
        RotaryKV(2, 2, 40, 40, 24, interleaved),
        isa,
        np.concatenate([q, k, v], axis=1),
        cos,
        sin,
        slots,
        *pools,
        blank(60, 80),
    )
    rotary = Rotary(2, 40, 24, interleaved)
    np.testing.assert_array_equal(run(rotary, isa, q, cos, sin, blank(60, 80))[-1], fused[-1])
    keys = run(rotary, isa, k, cos, sin, blank(60, 80))[-1]
    alone = run(WriteKV(2, 40, 40), isa, keys, v, slots, *pools)
    np.testing.assert_array_equal(alone[-2], fused[-3])
    np.testing.assert_array_equal(alone[-1], fused[-2])


@pytest.mark.parametrize("target", TARGETS)
def test_copy_kv(target: str) -> None:
    rng = np.random.default_rng(0)
    k_pool = rng.standard_normal((TILES, 2, 24, 16)).astype(np.float32)
    v_pool = rng.standard_normal((TILES, 2, 16, 40)).astype(np.float32)
    sources, targets = np.array([3, 17, 5], np.int32), np.array([60, 5, 18], np.int32)
    copied = run(CopyKV(2, 24, 40), isa_named(target), sources, targets, k_pool, v_pool)[2:]
    for before, after in zip(by_slot(k_pool, v_pool), by_slot(*copied), strict=True):
        expected = before.copy()
        for source, place in zip(sources, targets, strict=True):  # one after another: 17 reaches 18
            expected[place] = expected[source]
        np.testing.assert_array_equal(after, expected)


def test_pools_without_a_kernel_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="key dimension 20 is no positive multiple of 8"):
        KVShape(1, 20, 16)
    with pytest.raises(UnsupportedError, match="value dimension 0 is no positive multiple of 8"):
        KVShape(1, 16, 0)
    with pytest.raises(UnsupportedError, match="KV type 'int8' has no CPU kernel"):
        KVShape(1, 16, 16, "int8")
