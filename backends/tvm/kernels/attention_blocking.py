"""Register tiles of attention: they change speed, never results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.script import LANES, Expr


@dataclass(frozen=True)
class Blocking:
    """Register tiles of an instruction set for some number of query vectors.

    Attributes:
        vectors: Query vectors that are computed together.
        block: Of these, how many share a register tile.
        tiles: KV tiles of 16 tokens whose scores are summed at once; divides 16.
        columns: Vectors of 16 dimensions whose weighted sums are summed at once.
    """

    vectors: int
    block: int
    tiles: int
    columns: int


def blocking(vectors: int, planes: int, isa: Isa) -> Blocking:
    """The register tiles for ``vectors`` query vectors of ``planes`` operands each."""
    budget, widest = (24, 8) if isa.lanes == LANES else (6, 6)
    widest = max(1, widest // planes)
    dividing = [size for size in range(widest, widest // 2, -1) if vectors % size == 0]
    block = vectors if vectors <= widest else dividing[0] if dividing else widest
    tiles = 1
    while tiles < 8 and 2 * tiles * block * planes <= budget:
        tiles *= 2
    return Blocking(vectors, block, tiles, max(1, budget // (block * planes)))


def for_blocks(size: Blocking, body: Callable[[Expr | int, int], None]) -> None:
    """``body(m, count)`` for runs of ``count`` query vectors from ``m`` on."""
    blocks, rest = divmod(size.vectors, size.block)
    if blocks == 1:
        body(0, size.block)
    else:
        with tir.serial(0, blocks) as block:
            body(block * size.block, size.block)
    if rest:
        body(blocks * size.block, rest)


def column_chunks(value_dim: int, most: int) -> list[list[tuple[int, int]]]:
    """Vectors (first dimension, lanes) that cover a value, in even chunks of at most ``most``."""
    vectors = [(d, min(LANES, value_dim - d)) for d in range(0, value_dim, LANES)]
    chunks = -(-len(vectors) // most)
    each = -(-len(vectors) // chunks)
    return [vectors[i : i + each] for i in range(0, len(vectors), each)]
