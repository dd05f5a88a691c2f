"""The KV pools of one layer as arguments of kernels (`optc.backends.tvm.kv_layout`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import LANES, Expr, KernelBuilder, bind
from optc.backends.tvm.kv_layout import POOL_TYPES, TILE, PoolType
from optc.errors import UnsupportedError
from optc.ir.functions.mixing.recent_tokens import RECENT_TYPE

__all__ = [
    "DIM_MULTIPLE",
    "TILE",
    "KVShape",
    "for_parts",
    "k_element",
    "pool_arguments",
    "v_element",
]

#: Head dimensions must be multiples of this.
DIM_MULTIPLE = 8


@dataclass(frozen=True)
class KVShape:
    """Shape and type of one layer's pools.

    Attributes:
        kv_heads: Hkv.
        key_dim: Dk, a multiple of 8.
        value_dim: Dv, a multiple of 8.
        dtype: KV type, one of `POOL_TYPES`.

    Raises:
        UnsupportedError: The kernels cannot take the shape or type.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, dim in (("key", self.key_dim), ("value", self.value_dim)):
            if dim <= 0 or dim % DIM_MULTIPLE:
                raise UnsupportedError(
                    f"{name} dimension {dim} is no positive multiple of {DIM_MULTIPLE}",
                    where="KV pool",
                    hint="the CPU attention kernels take multiples of 8, such as 64, 80 or 128",
                )
        if self.dtype not in POOL_TYPES:
            raise UnsupportedError(
                f"KV type {self.dtype!r} has no CPU kernel",
                where="KV pool",
                hint=f"one of {', '.join(POOL_TYPES)}",
            )
        pair = 2 * self.type.group  # dimensions whose codes share bytes
        if pair and (self.key_dim % pair or self.value_dim % pair):
            raise UnsupportedError(
                f"dimensions {self.key_dim} and {self.value_dim} are no multiples of {pair}",
                where="KV pool",
                hint=f"{self.dtype} pools take only those; use kv-cache.dtype=int8",
            )

    @property
    def type(self) -> PoolType:
        """The elements of the pools."""
        return POOL_TYPES[self.dtype]

    @property
    def recent(self) -> KVShape:
        """The pools of the latest tokens."""
        return replace(self, dtype=RECENT_TYPE)


def for_parts(dim: int, body: Callable[[Expr, int], None]) -> None:
    """``body(d, lanes)`` for vectors of 16, or 8, that cover ``dim`` dimensions."""
    lanes = LANES if dim % LANES == 0 else DIM_MULTIPLE
    with tir.serial(0, dim // lanes) as part:
        body(bind(part * lanes), lanes)


def pool_arguments(
    builder: KernelBuilder, tiles: Expr, shape: KVShape, which: str = ""
) -> tuple[Expr, Expr]:
    """Declare k_pool and v_pool, their names behind ``which``, as the next two arguments."""
    kind, heads = shape.type, shape.kv_heads
    k_width, v_width = kind.width(shape.key_dim), kind.width(shape.value_dim)
    k_pool = builder.argument(f"{which}k_pool", (tiles, heads, k_width), kind.element)
    v_pool = builder.argument(f"{which}v_pool", (tiles, heads, v_width), kind.element)
    return k_pool, v_pool


def k_element(shape: KVShape, offset: Expr, d: Expr | int) -> Expr:
    """The index of element ``d`` of the token at ``offset`` in a K tile of one head."""
    pack = shape.type.pack
    return (d // pack * TILE + offset) * pack + d % pack


def v_element(shape: KVShape, offset: Expr, d: Expr | int) -> Expr:
    """The index of element ``d`` of the token at ``offset`` in a V tile of one head."""
    pack, width = shape.type.pack, shape.type.stored(shape.value_dim)
    return (offset // pack * width + d) * pack + offset % pack
