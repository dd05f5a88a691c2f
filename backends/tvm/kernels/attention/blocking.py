"""Register tiles of attention: they change speed, never results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.operands import Numbers
from optc.backends.tvm.kernels.dsl.script import LANES, Expr, round_up
from optc.backends.tvm.kernels.matmul.amx.instructions import ROWS

#: So many sums hide the latency of a multiply-add. More KV tiles at once would only score more
#: tokens that a prompt's rows do not see.
_INDEPENDENT = 10


@dataclass(frozen=True)
class Blocking:
    """Register tiles of an instruction set for some number of query vectors.

    Attributes:
        vectors: Most query vectors that are computed together.
        score_block: Of these, how many share a register tile of scores.
        tiles: KV tiles of 16 tokens whose scores are summed at once; divides 16.
        weigh_block: How many share a register tile of weighted values.
        columns: Vectors of 16 dimensions whose weighted sums are summed at once.
        amx: Tiles of AMX multiply all vectors, 16 at a time.
    """

    vectors: int
    score_block: int
    tiles: int
    weigh_block: int
    columns: int
    amx: bool = False

    @property
    def room(self) -> int:
        """Vectors that memory of operands has to be made for: tiles of AMX load whole ones."""
        return round_up(self.vectors, ROWS) if self.amx and self.vectors > ROWS else self.vectors


def tile_vectors(numbers: Numbers) -> int:
    """Query vectors of a tile of several rows, at most."""
    return 2 * ROWS if numbers.by_tiles else LANES


def blocking(vectors: int, numbers: Numbers, isa: Isa) -> Blocking:
    """The register tiles for ``vectors`` query vectors."""
    if numbers.by_tiles and vectors >= numbers.by_tiles.least:
        return Blocking(vectors, vectors, 4, vectors, 1, amx=True)
    budget, widest = (24, 8) if isa.lanes == LANES else (6, 6)
    score_block = _block(vectors, max(1, widest // numbers.query_planes))
    tiles, sums = 1, score_block * numbers.query_planes
    while tiles < 8 and tiles * sums < _INDEPENDENT and 2 * tiles * sums <= budget:
        tiles *= 2
    weigh_block = _block(vectors, max(1, widest // numbers.weight_planes))
    columns = max(1, budget // (weigh_block * numbers.weight_planes))
    return Blocking(vectors, score_block, tiles, weigh_block, columns)


def _block(vectors: int, widest: int) -> int:
    """At most ``widest`` vectors, preferably a divisor of their number."""
    dividing = [size for size in range(widest, widest // 2, -1) if vectors % size == 0]
    return vectors if vectors <= widest else dividing[0] if dividing else widest


def for_blocks(vectors: int, most: int, body: Callable[[Expr | int, int], None]) -> None:
    """``body(m, count)`` for runs of ``count`` query vectors, at most ``most``, from ``m`` on."""
    blocks, rest = divmod(vectors, most)
    if blocks == 1:
        body(0, most)
    else:
        with tir.serial(0, blocks) as block:
            body(block * most, most)
    if rest:
        body(blocks * most, rest)


def column_chunks(value_dim: int, most: int) -> list[list[tuple[int, int]]]:
    """Vectors (first dimension, lanes) that cover a value, in even chunks of at most ``most``."""
    vectors = [(d, min(LANES, value_dim - d)) for d in range(0, value_dim, LANES)]
    chunks = -(-len(vectors) // most)
    each = -(-len(vectors) // chunks)
    return [vectors[i : i + each] for i in range(0, len(vectors), each)]
