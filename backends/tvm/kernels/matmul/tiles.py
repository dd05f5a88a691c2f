"""The parts that all matmul kernels share: arguments, registers of a tile, and its storing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import BLOCK

#: Shape and element type of an operand.
Operand = tuple[tuple[int, ...], str]


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


@contextmanager
def building(name: str) -> Iterator[IRBuilder]:
    """Build one hand-scheduled kernel called ``name``; ``get()`` gives it afterwards."""
    with IRBuilder() as builder, tir.prim_func(s_tir=True):
        tir.func_name(name)
        tir.func_attr({"global_symbol": name, "tirx.noalias": True, "tirx.is_scheduled": True})
        yield builder


def argument(name: str, shape: tuple[Any, ...], dtype: str) -> Any:
    """Declare the next buffer argument; only the alignment of its element is assumed."""
    return tir.arg(name, tir.buffer(shape, dtype, align=np.dtype(dtype).itemsize))


def local(size: int, dtype: str) -> Any:
    """A small buffer of one thread; in registers when all its indices are constants.

    The compiler puts a buffer on the stack only if it is below 1024 bytes and of global scope;
    others (of local scope in particular) come from a memory pool at run time.
    """
    return tir.alloc_buffer((size,), dtype, scope="global")


def variable(value: Any, dtype: str = "int32") -> Any:
    """An integer that is computed here, once.

    What is bound is put in wherever it is used, and the compiler takes minutes over addresses with
    nested divisions.
    """
    cell = local(1, dtype)
    tir.buffer_store(cell, value, [0])
    return cell[0]


class Registers:
    """Vector registers of a tile: ``rows`` times ``vectors`` of ``lanes`` values.

    Each row is a buffer of its own, so that none is too large for the stack.
    """

    def __init__(self, rows: int, vectors: int, lanes: int, dtype: str) -> None:
        self.vectors, self.lanes, self.dtype = vectors, lanes, f"{dtype}x{lanes}"
        self.rows = [local(vectors * lanes, dtype) for _ in range(rows)]

    def cells(self) -> list[tuple[int, int]]:
        """All (row, vector)."""
        return [(r, c) for r in range(len(self.rows)) for c in range(self.vectors)]

    def __getitem__(self, cell: tuple[int, int]) -> Any:
        row, vector = cell
        return self.rows[row].vload([vector * self.lanes], self.dtype)

    def __setitem__(self, cell: tuple[int, int], value: Any) -> None:
        row, vector = cell
        store(self.rows[row], value, [vector * self.lanes], self.lanes)


@dataclass(frozen=True)
class TileRows:
    """The rows of a tile.

    Attributes:
        read: Index of each in the activations.
        write: Index of each in the output.
    """

    read: Sequence[Any]
    write: Sequence[Any]


#: ``rows_at(start, count)``: the rows of a tile, so many of them from a task's row ``start`` on.
RowsAt = Callable[[Any, int], TileRows]


def in_order(start: Any, count: int) -> TileRows:
    """Rows one after the other."""
    rows = [start + r for r in range(count)]
    return TileRows(rows, rows)


def store(buffer: Any, value: Any, indices: list[Any], lanes: int) -> None:
    """Store ``lanes`` consecutive values along the last axis, from ``indices`` on."""
    tir.buffer_store(buffer, value, [*indices[:-1], tir.ramp(indices[-1], 1, lanes)])


def fma(a: Any, b: Any, c: Any, lanes: int) -> Any:
    """``a * b + c`` of float32 vectors, rounded once."""
    name = f"llvm.fma.v{lanes}f32"
    return tir.call_llvm_pure_intrin(f"float32x{lanes}", name, a, b, c)


def store_tile(
    out: Any, rows: Sequence[Any], column: Any, tile: Registers, values: Callable[[int, int], Any]
) -> None:
    """Store the values of a tile, leaving out channels beyond N.

    Args:
        out: float32 [T, N].
        rows: Index of each row of the tile.
        column: First channel.
        tile: Gives vectors and lanes.
        values: ``values(r, c)`` gives the c-th vector of the r-th row.
    """
    n, lanes = int(out.shape[1]), tile.lanes
    width = tile.vectors * lanes

    def whole() -> None:
        for r, c in tile.cells():
            store(out, values(r, c), [rows[r], column + c * lanes], lanes)

    if n % BLOCK == 0:
        whole()
        return
    with tir.If(column + width <= n):
        with tir.Then():
            whole()
        with tir.Else():
            rest = local(width, "float32")
            for r in range(len(tile.rows)):
                for c in range(tile.vectors):
                    store(rest, values(r, c), [c * lanes], lanes)
                with tir.serial(tir.max(n - column, 0)) as index:
                    tir.buffer_store(out, rest[index], [rows[r], column + index])
