"""Where a tile of a matmul lies, and which of the next weights it fetches meanwhile.

With several tiles of rows, the first reads a block of weights from memory and the others from the
cache, so that memory would idle while they compute; so the first few fetch a part of the next
weights each. Where a task goes through K in *panels*, each with all of its rows, what is next is
the next panel. Panels are for blocks of which two do not fit into the second-level cache, and for
weights that are unpacked into memory, of which a panel stays in the first-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tvm.tirx.script.builder import ir as tir

#: Output channels of one block of packed weights.
BLOCK = 64
#: Two blocks of weights have to fit into the second-level cache beside the activations.
FETCH_BYTES = 384 << 10
#: Steps of a tile are counted in this many parts of a cache line that they fetch.
PACE = 256


@dataclass(frozen=True)
class Panels:
    """How tasks go through K.

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
    """

    index: Any
    channels: Any
    k: int
    kept: Any

    @property
    def is_last(self) -> Any:
        """Whether sums are complete behind it."""
        return (self.index + 1) * self.channels >= self.k

    def extent(self, total: int, depth: int) -> tuple[Any, Any]:
        """First step and number of steps, of ``total`` of ``depth`` channels over all of K."""
        steps = self.channels // depth
        start = tir.bind(self.index * steps)
        even = isinstance(steps, int) and total % steps == 0
        return start, steps if even else tir.min(steps, total - start)


@dataclass(frozen=True)
class Place:
    """Where a tile lies, and which part of the next weights it fetches.

    Attributes:
        block: Index of its block of 64 channels.
        column: First channel within the block.
        width: Channels of the task, 64 or 32; the tile's parts cover them.
        turn: Index among the tiles that fetch; behind the last one if it fetches nothing.
        pace: Cache lines to fetch in one step over K, times PACE; None fetches nothing.
        panel: The part of K; None is all of it.
        kept: First row of the tile's sums among those that the panel keeps.
    """

    block: Any
    column: Any
    width: int
    turn: Any = 0
    pace: Any = None
    panel: Panel | None = None
    kept: Any = 0

    @property
    def lines(self) -> int:
        """Cache lines of one step over K: 64 bytes are 4 bytes of 16 channels."""
        return self.width // 16

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

    def extent(self, total: int, depth: int) -> tuple[Any, Any]:
        """First step and number of steps, of ``total`` of ``depth`` channels over all of K."""
        return (0, total) if self.panel is None else self.panel.extent(total, depth)


def fetch_ahead(w: Any, place: Place, step: Any) -> None:
    """In a step over K, fetch some lines of the weights that come next into the second-level cache.

    Args:
        w: Packed weights [B, steps, 64, ...], 256 bytes a step.
        place: Of the tile.
        step: The current step over all of K.
    """
    blocks, total = int(w.shape[0]), int(w.shape[1])
    panel, lines = place.panel, place.lines
    first, steps = 0, total
    if panel is not None:
        share = Fraction(total, panel.k)  # steps of an input channel
        first, steps = panel.index, panel.channels * share.numerator // share.denominator
    if place.pace is None or 256 * (steps if isinstance(steps, int) else total) > FETCH_BYTES:
        return
    at_once = lines // 2  # the pace of two tiles
    line = (place.turn * steps + (step - first * steps)) * place.pace // PACE
    line = tir.bind(tir.min(line, steps * lines - at_once))
    block, column, origin = place.next(steps)
    block = tir.min(block, blocks - 1)
    for offset in range(at_once):
        at = line + offset
        channel = column + at % lines * 16
        spot = [block, origin + at // lines, channel, *[0] * (len(w.shape) - 3)]
        read, second_level, data = tir.int32(0), tir.int32(2), tir.int32(1)
        address = tir.address_of(w[tuple(spot)])
        name = "llvm.prefetch"
        tir.evaluate(tir.call_llvm_intrin("void", name, address, read, second_level, data))
