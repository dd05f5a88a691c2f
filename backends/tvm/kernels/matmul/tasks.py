"""Splits a matmul's output among threads, and a task's part of it into register tiles.

A kernel gives `emit_tiles` a function that emits the code of one register tile of R rows and 64
output channels, over all of K. Every output element is computed by exactly one tile, in an order
over K that depends on neither R nor the split, so that a row's bits are the same whatever the
number of rows T, the tile it falls into and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import BLOCK, PACE, Panel, Panels, Place
from optc.backends.tvm.kernels.matmul.rooms import Rooms
from optc.backends.tvm.kernels.matmul.schedule import (
    CHUNK_ROWS,
    FETCHERS,
    FEW_ROWS,
    MAX_TILE_ROWS,
    Schedule,
)
from optc.backends.tvm.kernels.matmul.tiles import round_up, variable

#: Weights up to which a parallel region (about 1 us) costs more than it saves at a few rows.
SERIAL_WEIGHTS = 1 << 15
#: Tasks that are enough for balance; fewer blocks than this also split the rows.
TASKS = 64

#: Emits the code of one register tile: first row, number of rows, place.
TileEmitter = Callable[[Any, int, Place], None]
#: Takes the memory of a task, by its place. What it gives emits what the task does before its
#: tiles, panel by panel, and gives these.
Prepare = Callable[[Place], Callable[[Place], TileEmitter]]


@dataclass(frozen=True)
class Tall:
    """Lone tiles of more than FEW_ROWS rows.

    Attributes:
        rows: Of the tallest one.
        prepare: Emits what comes before the tasks; gives the tiles.
    """

    rows: int
    prepare: Callable[[], TileEmitter]


@dataclass(frozen=True)
class Span:
    """The work of a task: rows [first, last) of a place."""

    place: Place
    first: Any
    last: Any


@dataclass(frozen=True)
class Cover:
    """The way of tasks that have no register tiles.

    Attributes:
        rows: From so many rows on; 1 are all.
        chunk: Rows of a task at least, where rows are split among threads as well.
        grain: Tasks begin at multiples of so many rows.
        emit: ``emit(span, rooms)`` emits all rows of a task, whose memory is of ``rooms``.
    """

    rows: int
    chunk: int
    grain: int
    emit: Callable[[Span, Rooms], None]


@dataclass(frozen=True)
class Work:
    """All work, and the tiles in which it is done.

    Attributes:
        rows: T, an int32 variable; of a span its rows.
        n: Output channels N.
        k: Input channels K of the packed weights.
        schedule: How the work is cut up.
        tile: ``tile(first_row, R, place)`` emits one tile; R is a Python int.
        prepare: Where there are more than FEW_ROWS rows, what a task does first; it gives the tiles
            that are used there instead of ``tile``.
        panels: Of K, where a task prepares something or has several tiles; None is all at once.
        short: The same where there are no more rows than these panels keep, in code of its own.
        tall: Used instead of ``prepare`` up to its rows.
        span: The task that this is emitted in; None emits the loop over tasks.
        rooms: Where tasks have their memory.
        cover: Used where there are so many rows, instead of tiles; None never is.
    """

    rows: Any
    n: int
    k: int
    schedule: Schedule
    tile: TileEmitter
    prepare: Prepare | None = None
    panels: Panels | None = None
    short: Panels | None = None
    tall: Tall | None = None
    span: Span | None = None
    rooms: Rooms = field(default_factory=Rooms)
    cover: Cover | None = None


@dataclass(frozen=True)
class _Cut:
    """The cutting of all work into tasks of one kind.

    Attributes:
        parts: Of a block, each a task.
        heights: Of tiles.
        fetch: Tiles that share the fetching of what comes next; 0 is one lone tile, None are all
            tiles of many rows.
        prepare: As `Work.prepare`.
        panels: Of K; None is all at once.
        cover: What emits a task's rows instead of tiles.
    """

    parts: int
    heights: range
    fetch: int | None
    prepare: Prepare | None = None
    panels: Panels | None = None
    cover: Cover | None = None


def emit_tiles(work: Work) -> None:
    """Emit the loops over blocks of 64 channels, panels of K and tiles of rows.

    Blocks, or halves of them, are split among threads; when they are few and rows are many, rows
    are split as well. K is never split among threads. A matmul too small to pay for a parallel
    region runs on the caller's thread.
    """
    cover = work.cover
    if cover is not None:
        covered = _Cut(1, range(0), None, cover=cover)
        if cover.rows <= 1:
            _tasks(work, covered)
            return
        with tir.If(work.rows >= cover.rows):
            with tir.Then():
                _tasks(work, covered)
            with tir.Else():
                _few(work, cover.rows - 1)
        return
    if not work.schedule.many:
        _few(work, None)
        return
    with tir.If(work.rows > FEW_ROWS):
        with tir.Then():
            _many(work)
        with tir.Else():
            _few(work, FEW_ROWS)


def _few(work: Work, most: int | None) -> None:
    """At most ``most`` rows; None is any number."""
    tallest = work.schedule.few
    lone = _Cut(1, range(1, min(tallest, most or tallest) + 1), fetch=0)
    if most is not None and most <= tallest:
        _tasks(work, lone)
        return
    with tir.If(work.rows <= tallest):
        with tir.Then():
            _tasks(work, lone)
        with tir.Else():
            _several(work, _Cut(1, _heights(tallest, tallest, most), FETCHERS))


def _many(work: Work) -> None:
    """More than FEW_ROWS rows."""
    schedule, tall = work.schedule, work.tall
    cut = _Cut(1 + schedule.halves, _heights(schedule.many, FEW_ROWS), FETCHERS)
    if work.prepare is None:
        _several(work, cut)
        return
    prepared = replace(cut, prepare=work.prepare, panels=work.panels)
    if tall is None:
        _tasks(work, prepared)
        return
    with tir.If(work.rows <= tall.rows):
        with tir.Then():
            lone = _Cut(cut.parts, range(FEW_ROWS + 1, tall.rows + 1), fetch=0)
            _tasks(replace(work, tile=tall.prepare()), lone)
        with tir.Else():
            _tasks(work, prepared)


def _several(work: Work, cut: _Cut) -> None:
    """Several tiles a task, nothing prepared."""
    if work.prepare is not None or work.short is None:
        _tasks(work, replace(cut, panels=None if work.prepare else work.panels))
        return
    with tir.If(work.rows <= work.short.rows):
        with tir.Then():
            _tasks(work, replace(cut, panels=work.short))
        with tir.Else():
            _tasks(work, replace(cut, panels=work.panels, fetch=None))


def _tasks(work: Work, cut: _Cut) -> None:
    """The parallel loop, or the one task that the work is."""
    if work.span is not None:
        _cover(work, cut, work.span)
        return
    rows, panels = work.rows, cut.panels
    loop = tir.parallel if work.n * work.k > SERIAL_WEIGHTS else tir.serial
    width, count = BLOCK // cut.parts, round_up(work.n, BLOCK) // BLOCK * cut.parts
    chunks: Any = 1
    if count < TASKS:
        least = cut.cover.chunk if cut.cover else CHUNK_ROWS
        chunks = tir.bind(tir.max(1, tir.min(rows // least, -(-TASKS // count))))
    if panels and not panels.whole:
        chunks = tir.bind(tir.max(chunks, (rows + (panels.rows - 1)) // panels.rows))
    with loop(count * chunks) as index:
        chunk, part = index % chunks, variable(index // chunks)
        column = variable(part % cut.parts * width) if cut.parts > 1 else 0
        task = Place(variable(part // cut.parts), column, width)
        first = variable(_begin(work, cut, chunk, chunks))
        last = variable(_begin(work, cut, chunk + 1, chunks))
        _cover(work, cut, Span(task, first, last))


def _begin(work: Work, cut: _Cut, chunk: Any, chunks: Any) -> Any:
    """First row of one of the chunks of all rows."""
    first = work.rows * chunk // chunks
    if cut.cover is None:
        return first
    grain = cut.cover.grain
    return tir.min(work.rows, (first + (grain - 1)) // grain * grain)


def _cover(work: Work, cut: _Cut, span: Span) -> None:
    """The tiles of one task, panel by panel."""
    with work.rooms.scope():
        if cut.cover is not None:
            cut.cover.emit(span, work.rooms)
            return
        prepared = cut.prepare and cut.prepare(span.place)

        def cover(task: Place) -> None:
            tile = work.tile
            if prepared is not None:
                tile = prepared(task)
                task = replace(task, fetched=task.early)
            _row_tiles(span.first, span.last, task, cut, tile)

        if cut.panels:
            _in_panels(work, span.place, cut.panels, max(cut.heights), cover)
        else:
            cover(span.place)


def _row_tiles(first: Any, last: Any, task: Place, cut: _Cut, tile: TileEmitter) -> None:
    """Cover rows [first, last) of one task by tiles whose heights differ by one at most."""
    tallest, fetch = max(cut.heights), cut.fetch
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
        for rows in reversed(cut.heights):
            with tir.If(height == rows), tir.Then():
                tile(start, rows, place)


def _in_panels(
    work: Work, task: Place, panels: Panels, tallest: int, cover: Callable[[Place], None]
) -> None:
    """Emit ``cover(place)`` for each panel of K, with tiles of at most ``tallest`` rows."""
    rows, k = work.rows, work.k
    kept = work.rooms.take(((panels.rows + MAX_TILE_ROWS) * task.width,), "int32")
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
