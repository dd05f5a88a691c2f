"""Tiles of sums of 16 query vectors at most: one for each plane of operands and tile of columns.

two planes, two tiles of columns        one plane, four tiles of columns

         words 6   words 7                     words 5  6   7   5
plane 4  [  0         1   ]            plane 4  [    0  1   2   3 ]
plane 5  [  2         3   ]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.attention.operands import Operands, TileType
from optc.backends.tvm.kernels.dsl.script import Expr, scratch, wide
from optc.backends.tvm.kernels.matmul.amx import instructions as amx

_SUMS = 4
#: Tiles of words, in turn, by the number of planes.
_TURNS = {1: (5, 6, 7, 5), 2: (6, 7)}


@dataclass(frozen=True)
class Panel:
    """The shapes of a product.

    Attributes:
        type: Of the products.
        planes: Of operands, 1 or 2.
        rows: Of a tile: query vectors, at most 16.
        depth: Bytes of an operand that one product takes, a multiple of 4 up to 64.
        columns: Of a tile: words side by side, at most 16.
    """

    type: TileType
    planes: int
    rows: int
    depth: int
    columns: int

    @property
    def across(self) -> int:
        """Tiles of columns at once."""
        return _SUMS // self.planes

    def sums(self, dtype: str) -> Expr:
        """Memory for sums [planes, rows, columns of all tiles]."""
        return scratch((self.planes, self.rows, self.across * self.columns), dtype)

    def configure(self, config: Expr) -> None:
        """Give all tiles their shapes."""
        totals = amx.Shape(self.rows, 4 * self.columns)
        factors = amx.Shape(self.rows, self.depth)
        words = amx.Shape(self.depth // 4, 4 * self.columns)
        shapes = dict.fromkeys(range(_SUMS), totals)
        shapes |= dict.fromkeys(range(_SUMS, _SUMS + self.planes), factors)
        shapes |= dict.fromkeys(_TURNS[self.planes], words)
        amx.configure(config, shapes)

    def start(self, count: int) -> None:
        """Zero the sums of ``count`` tiles of columns."""
        for plane in range(self.planes):
            for column in range(count):
                amx.zero(plane * self.across + column)

    def add(
        self, operands: Factors, first: Expr, words: Callable[[int], Expr], stride: int, count: int
    ) -> None:
        """Add products of the operands from element ``first`` on and of ``count`` tiles of words,
        whose addresses ``words`` gives and whose rows lie ``stride`` bytes apart."""
        for plane in range(self.planes):
            amx.load(_SUMS + plane, operands.at(plane, first), operands.stride(self.type))
        for column in range(count):
            tile = _TURNS[self.planes][column]
            amx.load(tile, words(column), stride)
            for plane in range(self.planes):
                self.type.dot(plane * self.across + column, _SUMS + plane, tile)

    def store(self, sums: Expr, count: int) -> None:
        """Store the sums of ``count`` tiles of columns."""
        for plane in range(self.planes):
            for column in range(count):
                address = tir.address_of(sums[plane, 0, column * self.columns])
                amx.store(plane * self.across + column, address, 4 * int(sums.shape[2]))


@dataclass(frozen=True)
class Factors:
    """Operands of the vectors from ``m`` on."""

    operands: Operands
    m: Expr

    def at(self, plane: int, element: Expr) -> Expr:
        """The address of the first vector's ``element``."""
        elements = self.operands.elements
        planes = (wide(plane),) if len(elements.shape) == 3 else ()
        return tir.address_of(elements[(wide(self.m), *planes, wide(element))])

    def stride(self, kind: TileType) -> int:
        """Bytes between vectors."""
        _, *each = map(int, self.operands.elements.shape)
        return kind.bytes * each[0] * (each[1] if len(each) == 2 else 1)


def for_vectors(rows: int, count: Expr | int, body: Callable[[Expr, Expr | int], None]) -> None:
    """``body(m, number)`` for runs of up to ``rows`` of ``count`` query vectors, from ``m`` on."""
    if isinstance(count, int) and count <= rows:
        body(tir.int32(0), count)
        return
    with tir.serial(0, (count + (rows - 1)) // rows) as block:
        body(block * rows, tir.min(count - block * rows, rows))
