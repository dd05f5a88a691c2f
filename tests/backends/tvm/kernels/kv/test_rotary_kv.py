from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.kv.copy_kv import CopyKV
from optc.backends.tvm.kernels.kv.pools import KVShape
from optc.backends.tvm.kernels.kv.rotary_kv import Rotary, RotaryKV, WriteKV
from optc.backends.tvm.kernels.kv.tree_kv import TreeKV
from optc.errors import UnsupportedError
from optc.runtime.executable.block_hadamard import block_hadamard
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run
from tests.backends.tvm.kv_pools import KV_TYPES, garbage, put, represented, stored, taken_dim

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


@pytest.mark.covering("target", "dtype")
@pytest.mark.parametrize("dtype", KV_TYPES)
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
    dtype: str,
    heads: int,
    kv_heads: int,
    key_dim: int,
    value_dim: int,
    rotary_dim: int,
    interleaved: bool,
    norm: bool,
) -> None:
    rng = np.random.default_rng(key_dim)
    key_dim, value_dim = taken_dim(dtype, key_dim), taken_dim(dtype, value_dim)
    q, k, v = (
        rng.standard_normal((ROWS, n, d)).astype(np.float32)
        for n, d in ((heads, key_dim), (kv_heads, key_dim), (kv_heads, value_dim))
    )
    angles = rng.uniform(-7, 7, (ROWS, rotary_dim // 2)).astype(np.float32)
    q_scale, k_scale = rng.standard_normal((2, key_dim)).astype(np.float32)
    slots = rng.permutation(TILES * 16)[: 2 * ROWS].reshape(2, ROWS).astype(np.int32)
    slots[1, 3] = -1
    shape = (heads, kv_heads, key_dim, value_dim, rotary_dim)
    config = RotaryKV(*shape, interleaved, 1, 2, norm, norm, EPSILON, dtype)
    arrays = run(
        config,
        isa_named(target),
        np.concatenate([a.reshape(ROWS, -1) for a in (q, k, v)], axis=1),
        *([np.cos(angles), np.sin(angles)] if rotary_dim else []),
        *([q_scale, k_scale] if norm else []),
        slots,
        garbage(dtype, TILES, kv_heads, key_dim),
        garbage(dtype, TILES, kv_heads, value_dim),
        blank(ROWS, heads * key_dim),
    )
    k_pool, v_pool = arrays[-3:-1]
    keys, values = stored(k_pool, "k", dtype, key_dim), stored(v_pool, "v", dtype, value_dim)
    if norm:
        q, k = normed(q, q_scale), normed(k, k_scale)
    out = arrays[-1].reshape(q.shape)
    assert np.abs(out - rotated(q, angles, interleaved)).max() < 3e-6
    written = slots[1] >= 0
    expected = rotated(k, angles, interleaved)[written]
    assert np.abs(keys[slots[1][written]] - expected).max() < _step(dtype, expected) + 3e-6
    np.testing.assert_array_equal(values[slots[1][written]], represented(v[written], dtype))
    for pool, kind, dim in ((k_pool, "k", key_dim), (v_pool, "v", value_dim)):
        untouched = garbage(dtype, TILES, kv_heads, dim)
        put(pool, kind, dtype, slots[1][written], np.zeros((written.sum(), kv_heads, dim)))
        put(untouched, kind, dtype, slots[1][written], np.zeros((written.sum(), kv_heads, dim)))
        np.testing.assert_array_equal(pool.view(np.uint8), untouched.view(np.uint8))


def _step(dtype: str, values: Array) -> float:
    """The largest error of what a pool represents."""
    largest = float(np.abs(values).max())
    steps = {
        "bfloat16": 256,
        "float16": 2048,
        "int8": 254,
        "int4": 14,
    }  # of int4, 8 of 119 and half of the 119th
    return 0.0 if dtype == "float32" else largest / steps[dtype]


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("interleaved", "dtype"),
    [
        (False, "float32"),
        (True, "float32"),
        (True, "bfloat16"),
        (False, "float16"),
        (False, "int8"),
        (False, "int4"),
    ],
)
def test_rotary_and_write_alone_equal_the_fused_kernel(
    target: str, interleaved: bool, dtype: str
) -> None:
    isa, rng = isa_named(target), np.random.default_rng(0)
    dim = taken_dim(dtype, 40)
    q, k, v = rng.standard_normal((3, 60, 2 * dim)).astype(np.float32)  # 60 rows go parallel
    angles = rng.uniform(-3, 3, (60, 12)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    slots = rng.permutation(64)[None, :60].astype(np.int32)
    pools = [garbage(dtype, 4, 2, dim) for _ in range(2)]
    fused = run(
        RotaryKV(2, 2, dim, dim, 24, interleaved, kv_dtype=dtype),
        isa,
        np.concatenate([q, k, v], axis=1),
        cos,
        sin,
        slots,
        *pools,
        blank(60, 2 * dim),
    )
    rotary = Rotary(2, dim, 24, interleaved)
    np.testing.assert_array_equal(run(rotary, isa, q, cos, sin, blank(60, 2 * dim))[-1], fused[-1])
    keys = run(rotary, isa, k, cos, sin, blank(60, 2 * dim))[-1]
    alone = run(WriteKV(2, dim, dim, kv_dtype=dtype), isa, keys, v, slots, *pools)
    np.testing.assert_array_equal(alone[-2], fused[-3])
    np.testing.assert_array_equal(alone[-1], fused[-2])


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dim", "block"), [(64, 64), (96, 16), (128, 64)])
def test_rotated_heads_equal_the_kernels_apart(target: str, dim: int, block: int) -> None:
    isa, rng = isa_named(target), np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 5, 2 * dim)).astype(np.float32)
    angles = rng.uniform(-3, 3, (5, 12)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    slots = rng.permutation(64)[None, :5].astype(np.int32)
    pools = [garbage("int8", 4, 2, dim) for _ in range(2)]
    config = RotaryKV(2, 2, dim, dim, 24, kv_dtype="int8", hadamard=block)
    qkv = np.concatenate([q, k, v], axis=1)
    fused = run(config, isa, qkv, cos, sin, slots, *pools, blank(5, 2 * dim))
    rotary = Rotary(2, dim, 24)
    q, k = (run(rotary, isa, x, cos, sin, blank(5, 2 * dim))[-1] for x in (q, k))
    np.testing.assert_array_equal(block_hadamard(q, block), fused[-1])
    write = WriteKV(2, dim, dim, kv_dtype="int8")
    alone = run(write, isa, block_hadamard(k, block), v, slots, *pools)
    np.testing.assert_array_equal(alone[-2], fused[-3])
    np.testing.assert_array_equal(alone[-1], fused[-2])


@pytest.mark.parametrize("target", TARGETS)
def test_recent_pools_are_written_besides_as_int8_alone_would_be(target: str) -> None:
    isa, rng, dim = isa_named(target), np.random.default_rng(0), 64
    q, k, v = rng.standard_normal((3, 60, 2 * dim)).astype(np.float32)
    qkv = np.concatenate([q, k, v], axis=1)
    angles = rng.uniform(-3, 3, (60, 12)).astype(np.float32)
    tables = np.cos(angles), np.sin(angles)
    slots = np.stack([rng.permutation(64)[:60] for _ in range(2)]).astype(np.int32)
    slots[0, 3] = slots[1, 7] = -1  # each group has its own padding
    pools = {dtype: [garbage(dtype, 4, 2, dim) for _ in range(2)] for dtype in ("int4", "int8")}
    both, out = [*pools["int4"], *pools["int8"]], blank(60, 2 * dim)
    shape = (2, 2, dim, dim, 24)
    config = RotaryKV(*shape, groups=2, kv_dtype="int4", recent_group=1)
    *got, q_got = run(config, isa, qkv, *tables, slots, *both, out)[4:]
    keys = run(Rotary(2, dim, 24), isa, k, *tables, out)[-1]
    written = WriteKV(2, dim, dim, groups=2, kv_dtype="int4", recent_group=1)
    alone = run(written, isa, keys, v, slots, *both)[3:]
    wanted = []
    for group, dtype in enumerate(pools):
        one = RotaryKV(*shape, group=group, groups=2, kv_dtype=dtype)
        *those, q_want = run(one, isa, qkv, *tables, slots, *pools[dtype], out)[4:]
        np.testing.assert_array_equal(q_got, q_want)
        wanted += those
    for pool, other, want in zip(got, alone, wanted, strict=True):
        np.testing.assert_array_equal(pool, want)
        np.testing.assert_array_equal(other, want)


@pytest.mark.covering
@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_copy_kv(target: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    dims = taken_dim(dtype, 24), taken_dim(dtype, 40)
    pools = []
    for kind, dim in zip("kv", dims, strict=True):
        pools.append(garbage(dtype, TILES, 2, dim))
        values = rng.standard_normal((TILES * 16, 2, dim)).astype(np.float32)
        put(pools[-1], kind, dtype, np.arange(TILES * 16), values)
    sources, targets = np.array([3, 17, 5], np.int32), np.array([60, 5, 18], np.int32)
    config = CopyKV(2, *dims, dtype)
    copied = run(config, isa_named(target), sources, targets, *pools)[2:]
    for before, after, kind, dim in zip(pools, copied, "kv", dims, strict=True):
        expected = stored(before, kind, dtype, dim)
        for source, place in zip(sources, targets, strict=True):  # one after another: 17 reaches 18
            expected[place] = expected[source]
        np.testing.assert_array_equal(stored(after, kind, dtype, dim), expected)


@pytest.mark.parametrize(("dtype", "target"), [(dtype, TARGETS[1]) for dtype in KV_TYPES])
def test_tree_kv_copies_tiles_then_slots(dtype: str, target: str) -> None:
    rng = np.random.default_rng(0)
    dims = taken_dim(dtype, 24), taken_dim(dtype, 40)
    pools = []
    for kind, dim in zip("kv", dims, strict=True):
        pools.append(garbage(dtype, TILES, 2, dim))
        values = rng.standard_normal((TILES * 16, 2, dim)).astype(np.float32)
        put(pools[-1], kind, dtype, np.arange(TILES * 16), values)
    tiles = np.array([[[0, -1], [3, -1]]], np.int32)
    slots = np.array([[[20, 21], [50, 63]]], np.int32)
    config = TreeKV(2, *dims, kv_dtype=dtype)
    copied = run(config, isa_named(target), tiles, slots, *pools)[2:]
    for before, after, kind, dim in zip(pools, copied, "kv", dims, strict=True):
        expected = stored(before, kind, dtype, dim)
        expected[48:64] = expected[:16]
        expected[[50, 63]] = expected[[20, 21]]
        np.testing.assert_array_equal(stored(after, kind, dtype, dim), expected)


def test_pools_without_a_kernel_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="key dimension 20 is no positive multiple of 8"):
        KVShape(1, 20, 16)
    with pytest.raises(UnsupportedError, match="value dimension 0 is no positive multiple of 8"):
        KVShape(1, 16, 0)
    with pytest.raises(UnsupportedError, match="KV type 'int2' has no CPU kernel"):
        KVShape(1, 16, 16, "int2")
    with pytest.raises(UnsupportedError, match="dimensions 64 and 80 are no multiples of 32"):
        KVShape(1, 64, 80, "int4")


@pytest.mark.parametrize("target", TARGETS)
def test_float16_is_finite(target: str) -> None:
    """What lies beyond its largest value becomes that, and what its smallest half misses zero."""
    values = np.array([65504, 65519, 65520, -7e4, 3e38, -3e38, 6e-8, 2e-8], np.float32)
    rows = np.concatenate([values, values, values])[None]
    arrays = run(
        RotaryKV(1, 1, 8, 8, 0, False, 1, 2, False, False, EPSILON, "float16"),
        isa_named(target),
        rows,
        np.array([[3], [5]], np.int32),
        garbage("float16", 1, 1, 8),
        garbage("float16", 1, 1, 8),
        blank(1, 8),
    )
    wanted = [65504, 65504, 65504, -65504, 65504, -65504, 2.0**-24, 0]
    for pool, kind in zip(arrays[-3:-1], "kv", strict=True):
        np.testing.assert_array_equal(stored(pool, kind, "float16", 8)[5, 0], wanted)
