"""Copies within one layer's pools that give every path of a tree keys and values of its own."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import bind, kernel
from optc.backends.tvm.kernels.kv.copy_kv import copy_slot, copy_tile
from optc.backends.tvm.kernels.kv.pools import KVShape, pool_arguments


@dataclass(frozen=True)
class TreeKV:
    """Copies of the step in one layer's pools; see `KVShape` for the first fields.

    Attributes:
        group: Row of tree_tiles and tree_slots.
        groups: G.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    group: int = 0
    groups: int = 1
    kv_dtype: str = "float32"


def tree_kv(config: TreeKV, isa: Isa) -> tvm.tirx.PrimFunc:
    """tree_tiles i32 [G,2,N], tree_slots i32 [G,2,M], k_pool and v_pool (in place).

    First whole tiles are copied, then single slots, each from the first to the second of a pair;
    pairs of -1 are padding. Nothing that is copied to is copied from. ``isa`` changes nothing:
    every instruction set runs the same operations.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    with kernel("tree_kv") as builder:
        tiles, slots, size = builder.size(), builder.size(), builder.size()
        tree_tiles = builder.argument("tree_tiles", (config.groups, 2, tiles), "int32")
        tree_slots = builder.argument("tree_slots", (config.groups, 2, slots), "int32")
        pools = pool_arguments(builder, size, shape)
        for pairs, count, copy in ((tree_tiles, tiles, copy_tile), (tree_slots, slots, copy_slot)):
            with tir.serial(0, count) as pair:
                source = bind(pairs[config.group, 0, pair])
                target = bind(pairs[config.group, 1, pair])
                with tir.If(source >= 0), tir.Then():
                    copy(shape, pools, source, target)
    return builder.finish()
