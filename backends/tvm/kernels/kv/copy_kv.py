"""Copies of KV slots within one layer's pools: copy-on-write, tree compaction."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import LANES, Expr, bind, kernel, load, store
from optc.backends.tvm.kernels.kv.pools import (
    TILE,
    KVShape,
    k_element,
    pool_arguments,
    v_element,
)


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
    tile, offset = bind(source // TILE), bind(source % TILE)
    to_tile, to_offset = bind(target // TILE), bind(target % TILE)
    kinds = ((shape.key_dim, k_element), (shape.value_dim, v_element))
    with tir.serial(0, shape.kv_heads) as head:
        for pool, (dim, element) in zip(pools, kinds, strict=True):
            kind = shape.type
            with tir.serial(0, kind.stored(dim)) as d:
                value = pool[tile, head, element(shape, offset, d)]
                store(pool, value, to_tile, head, element(shape, to_offset, d))
            if kind.group:
                with tir.serial(0, kind.groups(dim)) as group:
                    start = TILE * kind.stored(dim) + group * TILE
                    store(pool, pool[tile, head, start + offset], to_tile, head, start + to_offset)
            if kind.scaled:
                size, start = kind.scale_bytes, kind.scales_at(dim)
                scale = load(pool, tile, head, start + offset * size, lanes=size)
                store(pool, scale, to_tile, head, start + to_offset * size)


def copy_tile(shape: KVShape, pools: tuple[Expr, Expr], source: Expr, target: Expr) -> None:
    """Copy K and V of all heads of one tile."""
    for pool, dim in zip(pools, (shape.key_dim, shape.value_dim), strict=True):
        with tir.grid(shape.kv_heads, shape.type.width(dim) // LANES) as (head, part):
            values = load(pool, source, head, part * LANES)
            store(pool, values, target, head, part * LANES)
