"""What all matmul kernels share: the split of the output among threads and register tiles.

A kernel gives `emit_tiles` a function that emits the code of one register tile of R rows and 64
output channels, over all of K. Every output element is computed by exactly one tile, in an order
over K that depends on neither R nor the split, so that a row's bits are the same whatever the
number of rows T, the tile it falls into and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.schedule import FEW_ROWS, Schedule

#: Output channels of one block of packed weights.
BLOCK = 64
#: Weights up to which a parallel region (about 1 us) costs more than it saves at a few rows.
SERIAL_WEIGHTS = 1 << 15
#: Tasks that are enough for balance; fewer blocks than this also split the rows.
TASKS = 64
#: Two blocks of weights have to fit into the second-level cache beside the activations.
FETCH_BYTES = 384 << 10
#: Steps of a tile are counted in this many parts of a cache line that they fetch.
PACE = 256
#: Shape and element type of an operand.
Operand = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Place:
    """Where a tile lies, and which part of the next weights it fetches.

    Attributes:
        block: Index of its block of 64 channels.
        column: First channel within the block.
        width: Channels of the task, 64 or 32; the tile's parts cover them.
        turn: Index among the tiles that fetch; behind the last one if it fetches nothing.
        pace: Cache lines to fetch in one step over K, times PACE.
    """

    block: Any
    column: Any
    width: int
    turn: Any
    pace: Any

    @property
    def lines(self) -> int:
        """Cache lines of one step over K: 64 bytes are 4 bytes of 16 channels."""
        return self.width // 16

    def next(self) -> tuple[Any, Any]:
        """Block and first channel of the task behind this one."""
        if self.width == BLOCK:
            return self.block + 1, 0
        after = self.column + self.width
        return self.block + after // BLOCK, after % BLOCK


#: Emits the code of one register tile: first row, number of rows, place.
TileEmitter = Callable[[Any, int, Place], None]
#: Emits what a task does before its tiles, from its block, first column and width; gives the tiles.
Prepare = Callable[[Any, Any, int], TileEmitter]


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
    first: Any, last: Any, task: Callable[[Any, Any], Place], heights: range, tile: TileEmitter
) -> None:
    """Cover rows [first, last) of one task by tiles whose heights differ by one at most."""
    tallest = max(heights)
    count = tir.bind((last - first + (tallest - 1)) // tallest)
    with tir.serial(count) as index:
        start = tir.bind(first + (last - first) * index // count)
        height = tir.bind(first + (last - first) * (index + 1) // count - start)
        place = task(index, count)
        for rows in reversed(heights):
            with tir.If(height == rows), tir.Then():
                tile(start, rows, place)


def _task(block: Any, column: Any, width: int, fetch: int) -> Callable[[Any, Any], Place]:
    """The place of tile ``index`` of ``count`` in a task: its first tiles share the fetching."""
    lines = width // 16
    sharing = max(2, fetch * width // BLOCK)  # one tile never fetches all: see `fetch_ahead`

    def place(index: Any, count: Any) -> Place:
        turn = tir.bind(tir.Select(count == 1, sharing, tir.min(index, sharing)))
        pace = tir.bind(PACE * lines // tir.max(1, tir.min(count, sharing)))
        return Place(block, column, width, turn, pace)

    return place


def _shortest(tallest: int) -> int:
    """The least height that more than FEW_ROWS rows are ever divided into."""
    counts = range(FEW_ROWS + 1, FEW_ROWS + 1 + 2 * tallest)
    return min(rows // -(-rows // tallest) for rows in counts)


def emit_tiles(
    rows: Any,
    n: int,
    k: int,
    schedule: Schedule,
    tile: TileEmitter,
    prepare: Prepare | None = None,
) -> None:
    """Emit the loops over blocks of 64 channels and tiles of rows around ``tile``.

    Blocks, or halves of them, are split among threads; when they are few and rows are many, rows
    are split as well. K is never split. A matmul too small to pay for a parallel region runs on
    the caller's thread.

    Args:
        rows: T, an int32 variable.
        n: Output channels N.
        k: Input channels K, for the decision what is small.
        schedule: How the work is cut up.
        tile: ``tile(first_row, R, place)`` emits one tile; R is a Python int.
        prepare: Where there are more than FEW_ROWS rows, ``prepare(block, column, width)`` emits
            what a task does first, and gives the tiles that are used there instead of ``tile``.
    """
    blocks = round_up(n, BLOCK) // BLOCK
    loop = tir.parallel if n * k > SERIAL_WEIGHTS else tir.serial

    def tasks(parts: int, heights: range, prepare: Prepare | None = None) -> None:
        width, count = BLOCK // parts, blocks * parts
        chunks: Any = 1
        if count < TASKS:
            chunks = tir.bind(tir.max(1, tir.min(rows // schedule.chunk_rows, -(-TASKS // count))))
        with loop(count * chunks) as index:
            chunk, part = index % chunks, tir.bind(index // chunks)
            column = tir.bind(part % parts * width) if parts > 1 else 0
            block = tir.bind(part // parts)
            _row_tiles(
                tir.bind(rows * chunk // chunks),
                tir.bind(rows * (chunk + 1) // chunks),
                _task(block, column, width, schedule.fetch),
                heights,
                tile if prepare is None else prepare(block, column, width),
            )

    if not schedule.many:
        tasks(1, range(1, schedule.few + 1))
        return
    with tir.If(rows > FEW_ROWS):
        with tir.Then():
            heights = range(_shortest(schedule.many), schedule.many + 1)
            tasks(1 + schedule.halves, heights, prepare)
        with tir.Else():
            tasks(1, range(1, schedule.few + 1))


def fetch_ahead(w: Any, place: Place, step: Any) -> None:
    """In a step over K, fetch some lines of the next task's weights into the second-level cache.

    With several tiles of rows, the first reads a block from memory and the others from the cache,
    so memory would idle while they compute; the first few fetch a part of the next block each.

    Args:
        w: Packed weights [B, steps, 64, ...], 256 bytes a step.
        place: Of the tile.
        step: The current step.
    """
    blocks, steps = int(w.shape[0]), int(w.shape[1])
    if 256 * steps > FETCH_BYTES:
        return
    lines = place.lines
    block, column = place.next()
    following = tir.min(block, blocks - 1)
    at_once = lines // 2  # the pace of two tiles
    line = (place.turn * steps + step) * place.pace // PACE
    line = tir.bind(tir.min(line, steps * lines - at_once))
    for offset in range(at_once):
        at = line + offset
        channel = column + at % lines * 16
        spot = [following, at // lines, channel, *[0] * (len(w.shape) - 3)]
        read, second_level, data = tir.int32(0), tir.int32(2), tir.int32(1)
        address = tir.address_of(w[tuple(spot)])
        name = "llvm.prefetch"
        tir.evaluate(tir.call_llvm_intrin("void", name, address, read, second_level, data))


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
