"""What all matmul kernels share: the split of the output among threads and register tiles.

A kernel gives `emit_tiles` a function that emits the code of one register tile of R rows and 64
output channels, over all of K. Every output element is computed by exactly one tile, in an order
over K that depends on neither R nor the split, so that a row's bits are the same whatever the
number of rows T, the tile it falls into and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul_places import BLOCK, PACE, Panel, Panels, Place
from optc.backends.tvm.schedule import FEW_ROWS, MAX_TILE_ROWS, Schedule

#: Weights up to which a parallel region (about 1 us) costs more than it saves at a few rows.
SERIAL_WEIGHTS = 1 << 15
#: Tasks that are enough for balance; fewer blocks than this also split the rows.
TASKS = 64
#: Shape and element type of an operand.
Operand = tuple[tuple[int, ...], str]


#: Emits the code of one register tile: first row, number of rows, place.
TileEmitter = Callable[[Any, int, Place], None]
#: Emits what a task does before its tiles, from its place; gives the tiles.
Prepare = Callable[[Place], TileEmitter]


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


def variable(value: Any) -> Any:
    """An int32 that is computed here, once.

    What is bound is put in wherever it is used, and the compiler takes minutes over addresses with
    nested divisions.
    """
    cell = local(1, "int32")
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


def store(buffer: Any, value: Any, indices: list[Any], lanes: int) -> None:
    """Store ``lanes`` consecutive values along the last axis, from ``indices`` on."""
    tir.buffer_store(buffer, value, [*indices[:-1], tir.ramp(indices[-1], 1, lanes)])


def fma(a: Any, b: Any, c: Any, lanes: int) -> Any:
    """``a * b + c`` of float32 vectors, rounded once."""
    name = f"llvm.fma.v{lanes}f32"
    return tir.call_llvm_pure_intrin(f"float32x{lanes}", name, a, b, c)


def _row_tiles(
    first: Any, last: Any, task: Place, fetch: int | None, heights: range, tile: TileEmitter
) -> None:
    """Cover rows [first, last) of one task by tiles whose heights differ by one at most.

    Its first ``fetch`` tiles share the fetching of what comes next; 0 is one lone tile, None are
    all tiles of many rows.
    """
    tallest = max(heights)
    total = tir.bind(last - first)
    count = tir.bind((total + (tallest - 1)) // tallest)
    least = variable(total // tir.max(1, count))
    higher = variable(total - least * count)
    if fetch != 0:
        sharing = variable(tir.min(count, fetch) if fetch else count)
        lines = task.lines - task.fetched
        most = tir.max(2, sharing)  # a tile emits at most half of all
        pace = variable((PACE * lines + (most - 1)) // most)
    with tir.serial(count) as index:
        start = variable(first + index * least + tir.min(index, higher))
        height = variable(least + tir.cast(index < higher, "int32"))
        place = replace(task, kept=index)
        if fetch != 0:
            place = replace(
                place, turn=index, single=fetch is None, pace=tir.Select(index < sharing, pace, 0)
            )
        for rows in reversed(heights):
            with tir.If(height == rows), tir.Then():
                tile(start, rows, place)


def _in_panels(
    rows: Any, task: Place, k: int, panels: Panels, tallest: int, cover: Callable[[Place], None]
) -> None:
    """Emit ``cover(place)`` for each panel of K, with tiles of at most ``tallest`` rows."""
    kept = tir.alloc_buffer(((panels.rows + MAX_TILE_ROWS) * task.width,), "int32")
    # Not a constant to this compiler, which else divides each place by the lanes of a vector.
    room = variable(tallest * task.width)
    channels: Any = panels.channels
    if panels.whole:
        channels = variable(tir.Select(rows > panels.rows, round_up(k, channels), channels))
    with tir.serial((k + (channels - 1)) // channels) as index:
        cover(replace(task, panel=Panel(index, channels, k, kept, room)))


def _heights(tallest: int, above: int, most: int | None = None) -> range:
    """Heights of tiles that more than ``above`` rows, at most ``most``, are divided into."""
    counts = range(above + 1, (most or above + 2 * tallest) + 1)
    heights = [rows // -(-rows // tallest) for rows in counts]
    return range(min(heights), max(-(-rows // -(-rows // tallest)) for rows in counts) + 1)


def emit_tiles(
    rows: Any,
    n: int,
    k: int,
    schedule: Schedule,
    tile: TileEmitter,
    prepare: Prepare | None = None,
    panels: Panels | None = None,
    short: Panels | None = None,
) -> None:
    """Emit the loops over blocks of 64 channels, panels of K and tiles of rows around ``tile``.

    Blocks, or halves of them, are split among threads; when they are few and rows are many, rows
    are split as well. K is never split among threads. A matmul too small to pay for a parallel
    region runs on the caller's thread.

    Args:
        rows: T, an int32 variable.
        n: Output channels N.
        k: Input channels K of the packed weights.
        schedule: How the work is cut up.
        tile: ``tile(first_row, R, place)`` emits one tile; R is a Python int.
        prepare: Where there are more than FEW_ROWS rows, ``prepare(task)`` emits what a task does
            first, and gives the tiles that are used there instead of ``tile``.
        panels: Of K, where a task prepares something or has several tiles; None is all at once.
        short: The same where there are no more rows than these panels keep, in code of its own.
    """
    blocks = round_up(n, BLOCK) // BLOCK
    loop = tir.parallel if n * k > SERIAL_WEIGHTS else tir.serial

    def tasks(
        parts: int,
        heights: range,
        prepare: Prepare | None = None,
        panels: Panels | None = None,
        fetch: int | None = schedule.fetch,
    ) -> None:
        width, count = BLOCK // parts, blocks * parts
        chunks: Any = 1
        if count < TASKS:
            least = max(schedule.chunk_rows, FEW_ROWS + 1, schedule.few + 1)  # `heights` cover them
            chunks = tir.bind(tir.max(1, tir.min(rows // least, -(-TASKS // count))))
        if panels and not panels.whole:
            chunks = tir.bind(tir.max(chunks, (rows + (panels.rows - 1)) // panels.rows))
        with loop(count * chunks) as index:
            chunk, part = index % chunks, variable(index // chunks)
            column = variable(part % parts * width) if parts > 1 else 0
            task = Place(variable(part // parts), column, width)
            first = variable(rows * chunk // chunks)
            last = variable(rows * (chunk + 1) // chunks)

            def cover(task: Place) -> None:
                tiles = tile
                if prepare is not None:
                    tiles = prepare(task)
                    task = replace(task, fetched=task.early)
                _row_tiles(first, last, task, fetch, heights, tiles)

            if panels:
                _in_panels(rows, task, k, panels, max(heights), cover)
            else:
                cover(task)

    def several(parts: int, heights: range) -> None:
        if prepare is not None or short is None:
            tasks(parts, heights, panels=None if prepare else panels)
            return
        with tir.If(rows <= short.rows):
            with tir.Then():
                tasks(parts, heights, panels=short)
            with tir.Else():
                tasks(parts, heights, panels=panels, fetch=None if schedule.fetch else 0)

    def few(most: int | None) -> None:
        lone = range(1, schedule.few + 1)
        if most is not None and most <= schedule.few:
            tasks(1, lone, fetch=0)
            return
        with tir.If(rows <= schedule.few):
            with tir.Then():
                tasks(1, lone, fetch=0)
            with tir.Else():
                several(1, _heights(schedule.few, schedule.few, most))

    if not schedule.many:
        few(None)
        return
    with tir.If(rows > FEW_ROWS):
        with tir.Then():
            parts, heights = 1 + schedule.halves, _heights(schedule.many, FEW_ROWS)
            if prepare is None:
                several(parts, heights)
            else:
                tasks(parts, heights, prepare, panels)
        with tir.Else():
            few(FEW_ROWS)


def store_tile(
    out: Any, start: Any, column: Any, tile: Registers, values: Callable[[int, int], Any]
) -> None:
    """Store the values of a tile, leaving out channels beyond N.

    Args:
        out: float32 [T, N].
        start: First row.
        column: First channel.
        tile: Gives rows, vectors and lanes.
        values: ``values(r, c)`` gives the c-th vector of row ``start + r``.
    """
    n, lanes = int(out.shape[1]), tile.lanes
    width = tile.vectors * lanes

    def whole() -> None:
        for r, c in tile.cells():
            store(out, values(r, c), [start + r, column + c * lanes], lanes)

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
                    tir.buffer_store(out, rest[index], [start + r, column + index])
