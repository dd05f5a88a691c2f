"""The layout of K and V in the pools, for each KV type; needs neither TVM nor NumPy.

Slot s lies in tile s / 16 at s % 16. A pool is [tiles, Hkv, width]; a tile of one KV head is made
of 32-bit words that hold ``pack`` elements, next to each other:

- K: word [Dk / pack, 16]: dimensions ``pack * i ...`` of each of the 16 tokens;
- V: word [16 / pack, Dv]: tokens ``pack * i ...`` of each dimension;

and, for int8, of the 16 tokens' float32 scales behind them. So one vector of words holds what one
dot-product instruction takes, and a sum runs over words in the order of memory.

int4 pools have the words of int8 pools of half as many dimensions: byte 16 j + i of a token has the
codes of dimensions 32 j + i (lower half) and 32 j + 16 + i. Behind them lie bytes [D / 16, 16]: of
each group and token, the scale less 1 and, in the upper half, the zero point; then the 16 tokens'
bfloat16 scales.
"""

from __future__ import annotations

from dataclasses import dataclass

from optc.errors import InputError
from optc.runtime.executable.executable import INT4_GROUP, LayerKV, StepInterface

#: Slots of one tile; block sizes are multiples of it.
TILE = 16


@dataclass(frozen=True)
class PoolType:
    """The elements of a pool.

    Attributes:
        element: NumPy's and TVM's name of an element. bfloat16 and float16 are kept as their bits,
            int8 as the unsigned code value + 128, int4 as bytes of two codes.
        pack: Elements of a 32-bit word, which one instruction multiplies; 1 of types that become
            float32 one by one, whose words are the elements.
        scale_bytes: Of the scale of each token and KV head, behind the tile's elements; 0: none.
        group: Dimensions that share a scale and a zero point, and two codes a byte; 0: none do.
    """

    element: str
    pack: int
    scale_bytes: int = 0
    group: int = 0

    @property
    def scaled(self) -> bool:
        """Tokens have scales."""
        return self.scale_bytes > 0

    def stored(self, dim: int) -> int:
        """Elements of one token and KV head of ``dim`` dimensions, without scales."""
        return dim // 2 if self.group else dim

    def groups(self, dim: int) -> int:
        """Groups of ``dim`` dimensions."""
        return dim // self.group if self.group else 0

    def scales_at(self, dim: int) -> int:
        """The start of the tokens' scales in one tile and KV head."""
        return TILE * (self.stored(dim) + self.groups(dim))

    def width(self, dim: int) -> int:
        """Elements of one tile and KV head of ``dim`` dimensions, scales included."""
        return self.scales_at(dim) + TILE * self.scale_bytes


#: By the KV type's name in the normal form.
POOL_TYPES = {
    "float32": PoolType("float32", 1),
    "bfloat16": PoolType("uint16", 2),
    "float16": PoolType("uint16", 1),
    "int8": PoolType("uint8", 4, scale_bytes=4),
    "int4": PoolType("uint8", 4, scale_bytes=2, group=INT4_GROUP),
}


def pool_problem(dtype: str) -> str:
    """Empty if kernels read pools of a KV type, else the reason."""
    if dtype in POOL_TYPES:
        return ""
    return f"no TVM kernel reads KV pools of {dtype}, only {', '.join(POOL_TYPES)}"


def pool_shapes(tiles: int, layer: LayerKV) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Shapes of a layer's K and V pool."""
    width = POOL_TYPES[layer.dtype].width
    heads = layer.kv_heads
    return (tiles, heads, width(layer.key_dim)), (tiles, heads, width(layer.value_dim))


def check_allocation(
    spec: StepInterface, blocks_per_group: tuple[int, ...], block_size: int
) -> None:
    """Check what ``Executable.allocate_kv`` was asked for.

    Raises:
        InputError: The block size or the number of groups does not fit the engine.
    """
    multiple = spec.block_multiple
    if block_size <= 0 or block_size % multiple:
        raise InputError(
            f"block size {block_size} is not a multiple of {multiple}", where="allocate_kv"
        )
    if len(blocks_per_group) != len(spec.groups) or min(blocks_per_group) < 1:
        raise InputError(
            f"blocks {blocks_per_group} for {len(spec.groups)} KV groups",
            where="allocate_kv",
            hint="one positive number of blocks for each group",
        )
