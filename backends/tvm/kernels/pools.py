"""The KV pools of one layer: K [tiles,Hkv,Dk,16] and V [tiles,Hkv,16,Dv].

Slot s lies in tile s / 16 at s % 16. K has tokens innermost, so that one vector holds a dimension
of 16 tokens and a score is a plain sum over dimensions; V has dimensions innermost.
"""

from __future__ import annotations

from dataclasses import dataclass

from optc.backends.tvm.kernels.script import Expr, KernelBuilder
from optc.errors import UnsupportedError

#: Tokens of a tile; KV block sizes are multiples of it.
TILE = 16
#: Head dimensions must be multiples of this.
DIM_MULTIPLE = 8
_DTYPES = ("float32",)


@dataclass(frozen=True)
class KVShape:
    """Shape and element type of one layer's pools.

    Attributes:
        kv_heads: Hkv.
        key_dim: Dk, a multiple of 8.
        value_dim: Dv, a multiple of 8.
        dtype: Element type; ``float32``.

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
        if self.dtype not in _DTYPES:
            raise UnsupportedError(
                f"KV type {self.dtype!r} has no CPU kernel",
                where="KV pool",
                hint=f"one of {', '.join(_DTYPES)}",
            )


def pool_arguments(builder: KernelBuilder, tiles: Expr, shape: KVShape) -> tuple[Expr, Expr]:
    """Declare k_pool and v_pool as the next two arguments."""
    k_pool = builder.argument("k_pool", (tiles, shape.kv_heads, shape.key_dim, TILE), shape.dtype)
    v_pool = builder.argument("v_pool", (tiles, shape.kv_heads, TILE, shape.value_dim), shape.dtype)
    return k_pool, v_pool
