"""The operands that attention multiplies KV words with, and what an arithmetic must offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    Register,
    bind,
    lanes_of,
    splat,
    wide,
)


@dataclass(frozen=True)
class Operands:
    """M vectors of operands.

    Attributes:
        elements: [M, n], or [M, planes, n], of the numbers' element type.
        factor: float32 [M], the value of one unit of a dot product; None where it is 1.
        start: int32 [M], what the sum of the last plane's products starts from; None where it is 0.
    """

    elements: Expr
    factor: Expr = None
    start: Expr = None


@dataclass(frozen=True)
class Words:
    """16 words of a tile and head.

    Attributes:
        at: The pool's tile and KV head.
        row: Row of words.
        column: First of the 16 words in the row, a number, or an int64 where types allow.
        width: Words of a row.
    """

    at: tuple[Expr, Expr]
    row: Expr
    column: Expr | int
    width: int

    @property
    def first(self) -> Expr:
        """The first word, counted through all rows."""
        return wide(self.row) * self.width + self.column


@dataclass(frozen=True)
class TileType:
    """Products of a KV type by tiles of AMX.

    Attributes:
        dot: Emits a product of tiles: of sums, operands and words.
        bytes: Of an element, 1 or 2.
        tokens: Whose values one product takes, a multiple of 16; of more than 16, they are copied
            side by side.
        least: Query vectors from which on they are multiplied so.
    """

    dot: Callable[[int, int, int], None]
    bytes: int
    tokens: int
    least: int


class Numbers(Protocol):
    """The arithmetic of one KV type.

    Attributes:
        totals: Type of the sums of products.
        scaled: Tokens have scales, weights a factor.
        integral: Whatever bits a pool holds are numbers: a weight of zero leaves them out.
    """

    totals: ClassVar[str]
    scaled: ClassVar[bool]
    integral: ClassVar[bool]

    @property
    def query_planes(self) -> int:
        """Operands of a query vector."""
        ...

    @property
    def weight_planes(self) -> int:
        """Operands of a vector of softmax weights."""
        ...

    @property
    def by_tiles(self) -> TileType | None:
        """Products by tiles; None where the instruction set or the type has none."""
        ...

    def queries(self, values: Expr, vectors: Expr | int, room: int, dim: int) -> Operands:
        """Operands of query vectors, float32 [vectors, dim], in memory for ``room`` vectors."""
        ...

    def weights(self, room: int, tokens: int) -> Operands:
        """Memory for the weights of ``room`` vectors and ``tokens`` tokens, written by `put`."""
        ...

    def put(self, weights: Operands, weight: Expr, m: Expr, token: Expr) -> Expr:
        """Store the weights, at most 1, of the 16 tokens from ``token`` on, unless tokens have
        scales; returns what the softmax's sum has to count."""
        ...

    def settle(
        self, weights: Operands, products: Expr, m: Expr, tiles: tuple[Expr, Expr], largest: Expr
    ) -> None:
        """Store the ``products`` of vector m's weights and its tokens' scales, float32 [M, tokens],
        of which none is above ``largest``, for a range of tiles of 16 tokens."""
        ...

    def keys(self, pool: Expr, words: Words) -> tuple[Expr, ...]:
        """Words of keys."""
        ...

    def values(
        self, pool: Expr, words: Words, lanes: int, kept: Expr | None = None
    ) -> tuple[Expr, ...]:
        """Words of values, zero from ``lanes`` on."""
        ...

    def scales(self, pool: Expr, at: tuple[Expr, Expr], first: int) -> Expr:
        """float32 scales of a tile's 16 tokens, which lie from element ``first`` on."""
        ...

    def kept(self, word: Expr, low: Expr, end: Expr) -> Expr | None:
        """The bits of a word of values that belong to tokens ``low`` to ``end`` of its tile, for
        `values`; None if all do, or the numbers are integral."""
        ...

    def operand(self, operands: Operands, m: Expr, plane: int, word: Expr) -> Expr:
        """A word of an operand, in all lanes."""
        ...

    def dot(self, total: Register, words: tuple[Expr, ...], operand: Expr) -> None:
        """Add a word's products to ``total``."""
        ...

    def value(self, totals: list[Expr]) -> Expr:
        """The dot products, float32, in units of the operand's factor."""
        ...


def widened(vector: Expr) -> Expr:
    """The vector with zeros behind it, up to 16 lanes."""
    lanes = lanes_of(vector)
    if lanes == LANES:
        return vector
    dtype = str(vector.ty.dtype).split("x")[0]
    return combine(bind(vector), splat(0, dtype, LANES - lanes))


def combine(low: Expr, high: Expr) -> Expr:
    """Two vectors as one."""
    dtype = str(low.ty.dtype).split("x")[0]
    return bind(tir.vectorcombine(f"{dtype}x{lanes_of(low) + lanes_of(high)}", low, high))
