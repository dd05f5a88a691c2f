"""Copies of KV slots within one layer's pools: copy-on-write, tree compaction."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.pools import DIM_MULTIPLE, TILE, KVShape, pool_arguments
from optc.backends.tvm.kernels.script import Expr, bind, kernel, load, store


@dataclass(frozen=True)
class CopyKV:
    """Copy of slots in one layer's pools; see `KVShape` for the fields."""

    kv_heads: int
    key_dim: int
    value_dim: int
    kv_dtype: str = "float32"


def copy_kv(config: CopyKV, isa: Isa) -> tvm.tirx.PrimFunc:
    """src_slots i32 [n], dst_slots i32 [n], k_pool and v_pool (in place).

    Pairs are copied one after another: a slot written by one pair may be the source of a later
    one. ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("copy_kv") as builder:
        count, tiles = builder.size(), builder.size()
        sources = builder.argument("src_slots", (count,), "int32")
        targets = builder.argument("dst_slots", (count,), "int32")
        k_pool, v_pool = pool_arguments(builder, tiles, shape)
        with tir.serial(0, count) as pair:
            copy_slot(shape, (k_pool, v_pool), bind(sources[pair]), bind(targets[pair]))
    return builder.finish()


def copy_slot(shape: KVShape, pools: tuple[Expr, Expr], source: Expr, target: Expr) -> None:
    """Copy K and V of all heads of one slot."""
    k_pool, v_pool = pools
    tile, offset = bind(source // TILE), bind(source % TILE)
    to_tile, to_offset = bind(target // TILE), bind(target % TILE)
    with tir.grid(shape.kv_heads, shape.key_dim) as (head, d):
        store(k_pool, k_pool[tile, head, d, offset], to_tile, head, d, to_offset)
    with tir.grid(shape.kv_heads, shape.value_dim // DIM_MULTIPLE) as (head, part):
        d = part * DIM_MULTIPLE
        values = load(v_pool, tile, head, offset, d, lanes=DIM_MULTIPLE)
        store(v_pool, values, to_tile, head, to_offset, d)


def copy_tile(shape: KVShape, pools: tuple[Expr, Expr], source: Expr, target: Expr) -> None:
    """Copy K and V of all heads of one tile."""
    k_pool, v_pool = pools
    with tir.grid(shape.kv_heads, shape.key_dim) as (head, d):
        store(k_pool, load(k_pool, source, head, d, 0), target, head, d, 0)
    with tir.grid(shape.kv_heads, TILE, shape.value_dim // DIM_MULTIPLE) as (head, token, part):
        d = part * DIM_MULTIPLE
        values = load(v_pool, source, head, token, d, lanes=DIM_MULTIPLE)
        store(v_pool, values, target, head, token, d)
