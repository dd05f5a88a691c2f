"""The place of a tile of a matmul, and the part of the next weights it fetches meanwhile.

A tile that is its task's only one reads weights from memory as fast as it multiplies, and fetches
what it reads itself a little later; in parts of its columns, a share of the next block each. One
row without AVX-512 fetches nothing: it goes through parts of K in turn, and the processor, which
fetches ahead by itself, behind each of them. With
several tiles of rows, the first reads a block of weights from memory and the others from the cache,
so that memory would idle while they compute; so they fetch a part of the next weights each. Where a
task goes through K in *panels*, each with all of its rows, what is next is the next panel. Panels
are for blocks of which two do not fit into the second-level cache, and for weights that are
unpacked into memory, of which a panel stays in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tvm.tirx.script.builder import ir as tir

#: Output channels of one block of packed weights.
BLOCK = 64
#: Channels whose weights of a step over K are a cache line.
LINE = 16
#: Two blocks of weights have to fit into the second-level cache beside the activations.
FETCH_BYTES = 384 << 10
#: Steps of a tile are counted in this many parts of a cache line that they fetch.
PACE = 256
#: Places from which next weights are fetched in turn. The processor fetches on by itself behind
#: each of them, up to the end of a page of 4 KiB, and so has more lines under way than a core alone
#: can ask for.
STRANDS = 4
#: The same of a tile that does not fetch but reads: by bits of its weights, how many parts of K it
#: goes through in turn.
READ_STRANDS = {8: 4, 6: 2, 5: 2, 4: 2, 3: 2, 2: 2}
#: Steps over K, of 256 bytes, of a window of weights; a lone tile fetches the one behind that which
#: it reads, from all its pages of 4 KiB in turn.
WINDOW = 16 * STRANDS
#: Steps by which it then fetches into the first-level cache.
NEAR = 8


@dataclass(frozen=True)
class Panels:
    """The division of K into panels, which tasks go through.

    Attributes:
        channels: Input channels of a panel.
        rows: Rows whose sums a task keeps from one panel to the next.
        whole: Of more rows, a task goes through all of K at once; else it has at most ``rows``.
    """

    channels: int
    rows: int
    whole: bool = False


@dataclass(frozen=True)
class Panel:
    """One of the parts of K that a task goes through one after the other.

    Attributes:
        index: Which.
        channels: Input channels of a panel, a number or an int32; the last one may have fewer.
        k: Input channels of the packed weights.
        kept: int32 [at least rows * width of the task]: the sums of the panels before this one.
        room: Elements of it for each tile, as many as the tallest has.
    """

    index: Any
    channels: Any
    k: int
    kept: Any
    room: Any

    @property
    def is_last(self) -> Any:
        """True if sums are complete behind it."""
        return (self.index + 1) * self.channels >= self.k

    def extent(self, total: int, depth: int) -> tuple[Any, Any]:
        """First step and number of steps, of ``total`` of ``depth`` channels over all of K."""
        steps = self.channels // depth
        start = tir.bind(self.index * steps)
        even = isinstance(steps, int) and total % steps == 0
        return start, steps if even else tir.min(steps, total - start)


@dataclass(frozen=True)
class Place:
    """The place of a tile, and the part of the next weights that it fetches.

    Attributes:
        block: Index of its block of 64 channels.
        column: First channel within the block.
        width: Channels of the task, 64 or 32; the tile's parts cover them.
        turn: Index among the task's tiles.
        pace: Cache lines of the next weights to fetch in one step over K, times PACE; None is a
            lone tile, which fetches its own.
        panel: The part of K; None is all of it.
        kept: Index of the tile among those whose sums the panel keeps.
        fetched: Cache lines of a step over K that the task fetches before its tiles.
        single: Whether ``pace`` is at most one line, so that a step fetches no more.
        parts: Parts of the tile's columns, of which this is one.
        origin: Block of the packed weights that has the output's first channels.
    """

    block: Any
    column: Any
    width: int
    turn: Any = 0
    pace: Any = None
    panel: Panel | None = None
    kept: Any = 0
    fetched: int = 0
    single: bool = False
    parts: int = 1
    origin: Any = 0

    @property
    def lines(self) -> int:
        """Cache lines of one step over K: 64 bytes are 4 bytes of 16 channels."""
        return self.width // LINE

    @property
    def early(self) -> int:
        """Cache lines of a step over K that a task which prepares something fetches meanwhile."""
        return self.lines // 4

    @property
    def burst(self) -> int:
        """Cache lines of the next weights that a step over K fetches, some of them once more."""
        return 1 if self.single else self.lines // max(2, self.parts)

    @property
    def fetches_rarely(self) -> bool:
        """True if every second step over K is enough to fetch the next weights."""
        return self.pace is not None and self.parts >= self.lines

    def part(self, index: Any, count: int) -> Place:
        """Of one of the parts of a tile's columns: it fetches its part of what the tile fetches."""
        if self.pace is None:
            return replace(self, turn=index, parts=count)
        turn, pace = self.turn * count + index, self.pace // count
        return replace(self, turn=turn, pace=pace, parts=count)

    def next(self, steps: Any) -> tuple[Any, Any, Any]:
        """Block, first channel and first step over K of what comes behind this, where a panel has
        ``steps``."""
        block, column = self.block + 1, 0
        if self.width < BLOCK:
            after = self.column + self.width
            block, column = self.block + after // BLOCK, after % BLOCK
        if self.panel is None:
            return block, column, 0
        last, step = self.panel.is_last, (self.panel.index + 1) * steps
        return (
            tir.Select(last, block, self.block),
            tir.Select(last, column, self.column),
            tir.Select(last, 0, step),
        )

    def output(self, channel: Any) -> Any:
        """The output's channel of a channel of the packed weights."""
        return channel if isinstance(self.origin, int) else tir.bind(channel - self.origin * BLOCK)

    def extent(self, total: int, depth: int) -> tuple[Any, Any]:
        """First step and number of steps, of ``total`` of ``depth`` channels over all of K."""
        return (0, total) if self.panel is None else self.panel.extent(total, depth)


@contextmanager
def in_strands(first: Any, number: Any, strands: int) -> Iterator[Any]:
    """A loop over steps from ``first`` on, from as many parts of them in turn; gives the step."""
    if strands == 1:
        with tir.serial(number) as following:
            yield tir.bind(first + following)
        return
    length = number // strands
    with tir.serial(length) as following, tir.serial(strands) as strand:
        yield tir.bind(first + strand * length + following)


def fetch_ahead(w: Any, place: Place, step: Any, column: Any, width: int) -> None:
    """In a step over K, fetch some lines of weights into the second-level cache.

    Args:
        w: Packed weights [B, steps, 64, ...], 256 bytes a step.
        place: Of the tile.
        step: The current step over all of K.
        column: First channel of the tile within its block.
        width: Channels of the tile.
    """
    if place.pace is None:
        fetch_lines(w, [place.block, step + NEAR, column], width // LINE, level=3)
        if width == place.width:
            _fetch_window(w, place.block, step)
        elif 256 * int(w.shape[1]) <= FETCH_BYTES:  # each part a share of the next block
            _fetch_next(w, replace(place, pace=PACE * width // LINE), step)
        else:  # the other part's columns
            after = column + width
            fetch_lines(w, [place.block + after // BLOCK, step, after % BLOCK], width // LINE)
        return
    _fetch_next(w, place, step)


def _fetch_next(w: Any, place: Place, step: Any) -> None:
    """In a step over K, fetch some lines of what comes behind the block or its panel."""
    panel, lines, total = place.panel, place.lines, int(w.shape[1])
    first, steps, behind = 0, total, total
    if panel is not None:
        share = Fraction(total, panel.k)  # steps of an input channel
        steps = panel.channels * share.numerator // share.denominator
        first = panel.index * steps
        behind = tir.min(first + steps, total)  # the last panel may be shorter
    if 256 * (steps if isinstance(steps, int) else total) > FETCH_BYTES:
        return
    line = place.fetched * steps + (place.turn * steps + (step - first)) * place.pace // PACE
    if place.width < BLOCK:
        line = tir.bind(tir.min(line, steps * lines - place.burst))
        block, channel, origin = place.next(steps)
        for offset in range(place.burst):
            at = line + offset
            fetch_lines(w, [block, origin + at // lines, channel + at % lines * LINE], 1)
    elif place.single or not isinstance(steps, int):
        # Many rows, and panels of any length, which are unpacked: products take longer than memory.
        fetch_lines(w, [place.block, behind, line * LINE], place.burst)
    else:
        apart = steps * lines // STRANDS * LINE
        first = in_turn(line // place.burst, STRANDS // place.burst, apart)
        first = tir.bind(tir.cast(first, "int64"))
        origin = [tir.cast(place.block, "int64"), tir.cast(behind, "int64")]
        for strand in range(0, STRANDS, STRANDS // place.burst):
            fetch_lines(w, [*origin, first + tir.int64(strand * apart)], 1)


def in_turn(index: Any, strands: int, apart: int) -> Any:
    """First channel of a line, counted in the order of fetching from ``strands`` strands in turn
    that are ``apart`` channels from each other."""
    if apart & (apart - 1):
        return tir.bitwise_and(index, strands - 1) * apart + index // strands * LINE
    # One product moves the strand above the line within it, and a mask takes away the rest.
    return tir.bitwise_and(index * (apart + LINE // strands), strands * apart - LINE)


def _fetch_window(w: Any, block: Any, step: Any) -> None:
    """Fetch a line from each strand of the window behind that of a block's step over K."""
    position = tir.bind(block * int(w.shape[1]) + step)
    within = tir.bind(tir.bitwise_and(position, WINDOW - 1))
    first = (position - within + WINDOW) * BLOCK + within * LINE
    first = tir.bind(tir.cast(first, "int64"))
    for strand in range(STRANDS):
        offset = strand * (WINDOW // STRANDS) * BLOCK
        fetch_lines(w, [tir.int64(0), tir.int64(0), first + tir.int64(offset)], 1)


def fetch_lines(w: Any, spot: list[Any], lines: int, apart: int = LINE, level: int = 2) -> None:
    """Fetch cache lines from an element on; that it lies beyond the buffer is no error.

    Args:
        w: Buffer [B, steps, channels or scales, ...].
        spot: Indices of the first three axes.
        lines: How many.
        apart: Elements of the third axis, with what lies behind them, of one line.
        level: 3 fetches into the first-level cache, 2 into the second.
    """
    read, locality, data = tir.int32(0), tir.int32(level), tir.int32(1)
    for line in range(lines):
        element = [*spot[:-1], spot[-1] + line * apart, *[0] * (len(w.shape) - 3)]
        address = tir.address_of(w[tuple(element)])
        tir.evaluate(tir.call_llvm_intrin("void", "llvm.prefetch", address, read, locality, data))
