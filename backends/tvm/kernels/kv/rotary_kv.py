"""Rotary embedding, norms of heads, and the write of K and V into the paged pools."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    KernelBuilder,
    bind,
    for_rows,
    kernel,
    scratch,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.kernels.kv.kv_write import write_key, write_value
from optc.backends.tvm.kernels.kv.pools import KVShape, pool_arguments
from optc.backends.tvm.kernels.kv.rotate import rotate_head
from optc.backends.tvm.kernels.token_wise.hadamard import rotate_row
from optc.backends.tvm.kernels.token_wise.norm import normalize_head

#: Values below which a parallel region costs more than it saves: each pool line is a cache miss.
_SERIAL_WORK = 1 << 12


@dataclass(frozen=True)
class RotaryKV:
    """Everything between the merged QKV matmul and attention.

    Attributes:
        heads: H.
        kv_heads: Hkv.
        key_dim: Dk, a multiple of 8.
        value_dim: Dv, a multiple of 8.
        rotary_dim: r, leading values of each head that are rotated; 0 = none, without cos and sin.
        interleaved: Pairs are neighbours instead of halves apart.
        group: Row of slot_mapping.
        groups: G.
        q_norm: Heads of q are RMS-normalized first.
        k_norm: Heads of k are RMS-normalized first.
        epsilon: Of those norms.
        kv_dtype: Type of the pools.
        recent_group: Row of slot_mapping for the pools of the latest tokens; -1: there are none.
        hadamard: Channels of a block that q and k are rotated in behind all that; it divides Dk. 0:
            they are not.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    rotary_dim: int
    interleaved: bool = False
    group: int = 0
    groups: int = 1
    q_norm: bool = False
    k_norm: bool = False
    epsilon: float = 0.0
    kv_dtype: str = "float32"
    recent_group: int = -1
    hadamard: int = 0


@dataclass(frozen=True)
class Rotary:
    """Rotary embedding alone; the fields are those of `RotaryKV`, dim is that of a head."""

    heads: int
    dim: int
    rotary_dim: int
    interleaved: bool = False


@dataclass(frozen=True)
class WriteKV:
    """Write of K and V alone; the fields are those of `RotaryKV`."""

    kv_heads: int
    key_dim: int
    value_dim: int
    group: int = 0
    groups: int = 1
    kv_dtype: str = "float32"
    recent_group: int = -1


@dataclass(frozen=True)
class _Angles:
    """cos and sin [T, r / 2] and how pairs lie; None where nothing is rotated."""

    cos: Expr
    sin: Expr
    rotary_dim: int
    interleaved: bool

    def rotate(self, head: Expr, row: Expr) -> None:
        if self.rotary_dim:
            rotate_head(head, self.cos, self.sin, row, self.rotary_dim, self.interleaved)


@dataclass(frozen=True)
class _Written:
    """Pools that rows are written to, by the slots of a KV group."""

    k: Expr
    v: Expr
    shape: KVShape
    group: int
    isa: Isa

    def write(self, slots: Expr, row: Expr, head: Expr, key: Expr, value: Expr) -> None:
        """Write a row's key [Dk] and value [Dv] of one KV head, unless its slot is -1."""
        slot = bind(slots[self.group, row])
        with tir.If(slot >= 0), tir.Then():
            write_key(self.k, self.shape, slot, head, key)
            write_value(self.v, self.shape, slot, head, value, self.isa)


def _written(
    builder: KernelBuilder, config: RotaryKV | WriteKV, shape: KVShape, isa: Isa
) -> list[_Written]:
    """Declare the pools as the next arguments."""
    pools = pool_arguments(builder, builder.size(), shape)
    written = [_Written(*pools, shape, config.group, isa)]
    if config.recent_group >= 0:
        latest = pool_arguments(builder, builder.size(), shape.recent, "recent_")
        written.append(_Written(*latest, shape.recent, config.recent_group, isa))
    return written


def _angles(builder: KernelBuilder, rows: Expr, rotary_dim: int, interleaved: bool) -> _Angles:
    if not rotary_dim:
        return _Angles(None, None, 0, interleaved)
    cos = builder.argument("cos", (rows, rotary_dim // 2))
    sin = builder.argument("sin", (rows, rotary_dim // 2))
    return _Angles(cos, sin, rotary_dim, interleaved)


def rotary_kv(config: RotaryKV, isa: Isa) -> tvm.tirx.PrimFunc:
    """qkv f32 [T,(H+Hkv)*Dk+Hkv*Dv], [cos f32 [T,r/2], sin], [q_scale f32 [Dk]],
    [k_scale f32 [Dk]], slot_mapping i32 [G,T], k_pool, v_pool (in place), and those of the latest
    tokens if there are any -> q f32 [T,H*Dk].

    Rows with slot -1 are not written to the pools. ``isa`` changes how bytes are stored, not which.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    dim, k_start = config.key_dim, config.heads * config.key_dim
    v_start = k_start + config.kv_heads * dim
    width = v_start + config.kv_heads * config.value_dim
    with kernel("rotary_kv") as builder:
        rows = builder.size()
        qkv = builder.argument("qkv", (rows, width))
        angles = _angles(builder, rows, config.rotary_dim, config.interleaved)
        q_scale = builder.argument("q_scale", (dim,)) if config.q_norm else None
        k_scale = builder.argument("k_scale", (dim,)) if config.k_norm else None
        slots = builder.argument("slot_mapping", (config.groups, rows), "int32")
        written = _written(builder, config, shape, isa)
        q = builder.argument("q", (rows, k_start))

        def prepare(head: Expr, row: Expr, start: Expr, scale: Expr | None) -> None:
            """Bring a head's values, normalized and rotated, into ``head`` [Dk]."""
            _fetch_head(head, qkv, row, start, dim, scale, config.epsilon)
            angles.rotate(head, row)
            if config.hadamard:
                rotate_row(head, dim, config.hadamard)

        def body(row: Expr) -> None:
            head, value = scratch((dim,)), scratch((config.value_dim,))
            with tir.serial(0, config.heads) as h:
                prepare(head, row, h * dim, q_scale)
                for_vectors(
                    dim, lambda o, n: store_part(q, load_part(head, n, o), n, row, h * dim + o)
                )
            with tir.serial(0, config.kv_heads) as h:
                prepare(head, row, k_start + h * dim, k_scale)
                start = bind(v_start + h * config.value_dim)
                _fetch_head(value, qkv, row, start, config.value_dim, None, 0.0)
                for pools in written:
                    pools.write(slots, row, h, head, value)

        for_rows(rows, rows * width > _SERIAL_WORK, body)
    return builder.finish()


def rotary(config: Rotary, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,n*d], cos f32 [T,r/2], sin f32 [T,r/2] -> out f32 [T,n*d].

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    dim, width = config.dim, config.heads * config.dim
    with kernel("rotary") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        angles = _angles(builder, rows, config.rotary_dim, config.interleaved)
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            head = scratch((dim,))
            with tir.serial(0, config.heads) as h:
                _fetch_head(head, x, row, h * dim, dim, None, 0.0)
                angles.rotate(head, row)
                for_vectors(
                    dim, lambda o, n: store_part(out, load_part(head, n, o), n, row, h * dim + o)
                )

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


def write_kv(config: WriteKV, isa: Isa) -> tvm.tirx.PrimFunc:
    """k f32 [T,Hkv*Dk], v f32 [T,Hkv*Dv], slot_mapping i32 [G,T], k_pool, v_pool (in place), and
    those of the latest tokens if there are any.

    Rows with slot -1 are not written. ``isa`` changes how bytes are stored, not which.

    Raises:
        UnsupportedError: The pools have a shape or type without a kernel.
    """
    shape = KVShape(config.kv_heads, config.key_dim, config.value_dim, config.kv_dtype)
    k_width, v_width = shape.kv_heads * shape.key_dim, shape.kv_heads * shape.value_dim
    with kernel("write_kv") as builder:
        rows = builder.size()
        k = builder.argument("k", (rows, k_width))
        v = builder.argument("v", (rows, v_width))
        slots = builder.argument("slot_mapping", (config.groups, rows), "int32")
        written = _written(builder, config, shape, isa)

        def body(row: Expr) -> None:
            key, value = scratch((shape.key_dim,)), scratch((shape.value_dim,))
            with tir.serial(0, shape.kv_heads) as h:
                _fetch_head(key, k, row, h * shape.key_dim, shape.key_dim, None, 0.0)
                _fetch_head(value, v, row, h * shape.value_dim, shape.value_dim, None, 0.0)
                for pools in written:
                    pools.write(slots, row, h, key, value)

        for_rows(rows, rows * (k_width + v_width) > _SERIAL_WORK, body)
    return builder.finish()


def _fetch_head(
    head: Expr, x: Expr, row: Expr, start: Expr, dim: int, scale: Expr | None, epsilon: float
) -> None:
    """Copy ``x[row, start : start + dim]`` to ``head`` [dim], normalized if there is a scale."""

    def read(offset: Expr | int, count: int) -> Expr:
        return load_part(x, count, row, start + offset)

    def write(value: Expr, offset: Expr | int, count: int) -> None:
        store_part(head, value, count, offset)

    if scale is None:
        for_vectors(dim, lambda offset, count: write(read(offset, count), offset, count))
    else:
        normalize_head(read, write, scale, dim, epsilon)
