"""Rotary embedding, norms and rotation of heads, writes into the paged pools, copies of slots."""

from __future__ import annotations

import tvm

from optc.backends.tvm.kernels.dsl.script import Expr, KernelBuilder, kernel
from optc.backends.tvm.kernels.kv.copy_kv import CopyKV
from optc.backends.tvm.kernels.kv.pools import KVShape, pool_arguments
from optc.backends.tvm.kernels.kv.rotary_kv import Rotary, RotaryKV, WriteKV
from optc.backends.tvm.kernels.kv.tree_kv import TreeKV
from optc.backends.tvm_cuda.kernels.launch import float_bits, launch, template

#: Threads of a block: ``KV_WARPS`` of the device code.
_THREADS = 256
#: The pool's type in the device code, by KV type.
POOLS = {"float32": "optc::PoolF32", "bfloat16": "optc::PoolBf16", "int8": "optc::PoolInt8"}


def rotary_kv(config: RotaryKV) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.kv.rotary_kv.rotary_kv`.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    dim, k_start = config.key_dim, config.heads * config.key_dim
    width = k_start + config.kv_heads * (dim + config.value_dim)
    with kernel("rotary_kv") as builder:
        rows, tiles = builder.size(), builder.size()
        qkv = builder.argument("qkv", (rows, width))
        cos, sin = _angles(builder, rows, config.rotary_dim) or (qkv, qkv)
        q_scale = builder.argument("q_scale", (dim,)) if config.q_norm else qkv
        k_scale = builder.argument("k_scale", (dim,)) if config.k_norm else qkv
        slots = builder.argument("slot_mapping", (config.groups, rows), "int32")
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        q = builder.argument("q", (rows, k_start))
        function = template(
            "rotary_kv",
            POOLS[config.kv_dtype],
            config.heads,
            config.kv_heads,
            config.key_dim,
            config.value_dim,
            config.rotary_dim,
            config.interleaved,
            config.q_norm,
            config.k_norm,
            float_bits(config.epsilon),
            config.group,
            config.hadamard,
        )
        operands = (qkv, cos, sin, q_scale, k_scale, slots, k_pool, v_pool, q)
        launch(function, (rows,), _THREADS, operands, rows)
    return builder.finish()


def rotary(config: Rotary) -> tvm.tirx.PrimFunc:
    """x f32 [T,n*d], cos f32 [T,r/2], sin f32 [T,r/2] -> out f32 [T,n*d]."""
    width = config.heads * config.dim
    with kernel("rotary") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        cos, sin = _angles(builder, rows, config.rotary_dim) or (x, x)
        out = builder.argument("out", (rows, width))
        shape = (config.heads, config.dim, config.rotary_dim, config.interleaved)
        launch(template("rotary", *shape), (rows,), _THREADS, (x, cos, sin, out))
    return builder.finish()


def write_kv(config: WriteKV) -> tvm.tirx.PrimFunc:
    """k f32 [T,Hkv*Dk], v f32 [T,Hkv*Dv], slot_mapping i32 [G,T], k_pool, v_pool (in place).

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("write_kv") as builder:
        rows, tiles = builder.size(), builder.size()
        k = builder.argument("k", (rows, shape.kv_heads * shape.key_dim))
        v = builder.argument("v", (rows, shape.kv_heads * shape.value_dim))
        slots = builder.argument("slot_mapping", (config.groups, rows), "int32")
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        function = template("write_kv", *_pool_template(shape), config.group)
        launch(function, (rows,), _THREADS, (k, v, slots, k_pool, v_pool), rows)
    return builder.finish()


def copy_kv(config: CopyKV) -> tvm.tirx.PrimFunc:
    """src_slots i32 [n], dst_slots i32 [n], k_pool and v_pool (in place); pairs one after another.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("copy_kv") as builder:
        count, tiles = builder.size(), builder.size()
        sources = builder.argument("src_slots", (count,), "int32")
        targets = builder.argument("dst_slots", (count,), "int32")
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        function = template("copy_kv", *_pool_template(shape))
        launch(function, (shape.kv_heads,), 32, (sources, targets, k_pool, v_pool), count)
    return builder.finish()


def tree_kv(config: TreeKV) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.kv.tree_kv.tree_kv`.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("tree_kv") as builder:
        tile_pairs, slot_pairs, size = builder.size(), builder.size(), builder.size()
        tiles = builder.argument("tree_tiles", (config.groups, 2, tile_pairs), "int32")
        slots = builder.argument("tree_slots", (config.groups, 2, slot_pairs), "int32")
        k_pool, v_pool = pool_arguments(builder, size, shape)
        function = template("tree_kv", *_pool_template(shape), config.group)
        operands = (tiles, slots, k_pool, v_pool)
        launch(function, (shape.kv_heads,), _THREADS, operands, tile_pairs, slot_pairs)
    return builder.finish()


def _angles(builder: KernelBuilder, rows: Expr, rotary_dim: int) -> tuple[Expr, Expr] | None:
    if not rotary_dim:
        return None
    shape = (rows, rotary_dim // 2)
    return builder.argument("cos", shape), builder.argument("sin", shape)


def _pool_template(shape: KVShape) -> tuple[object, ...]:
    return POOLS[shape.dtype], shape.kv_heads, shape.key_dim, shape.value_dim
