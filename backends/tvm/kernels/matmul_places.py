"""Where a tile of a matmul lies, and which of the next weights it fetches meanwhile.

With several tiles of rows, the first reads a block of weights from memory and the others from the
cache, so that memory would idle while they compute; so the first few fetch a part of the next
weights each. Where two blocks do not fit into the second-level cache, a task goes through K in
*panels*, each with all of its rows, and what is next is the next panel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

#: Output channels of one block of packed weights.
BLOCK = 64
#: Two blocks of weights have to fit into the second-level cache beside the activations.
FETCH_BYTES = 384 << 10
#: Steps of a tile are counted in this many parts of a cache line that they fetch.
PACE = 256


@dataclass(frozen=True)
class Panel:
    """One of the parts of K that a task goes through one after the other.

    Attributes:
        index: Which.
        channels: Input channels of a panel; the last one may have fewer.
        k: Input channels of the packed weights.
        kept: int32 [rows * width of the task]: the sums of the panels before this one.
        first: The row of the matmul whose sums are first there.
    """

    index: Any
    channels: int
    k: int
    kept: Any
    first: Any

    @property
    def count(self) -> int:
        """Panels of all of K."""
        return -(-self.k // self.channels)

    @property
    def is_last(self) -> Any:
        """Whether sums are complete behind it."""
        return self.index == self.count - 1

    def steps(self, total: int) -> int:
        """Steps of a panel where those over all of K are ``total``."""
        return self.channels * total // self.k

    def extent(self, total: int) -> tuple[Any, Any]:
        """First step and number of steps."""
        steps = self.steps(total)
        start = tir.bind(self.index * steps)
        return start, steps if total % steps == 0 else tir.min(steps, total - start)


@dataclass(frozen=True)
class Place:
    """Where a tile lies, and which part of the next weights it fetches.

    Attributes:
        block: Index of its block of 64 channels.
        column: First channel within the block.
        width: Channels of the task, 64 or 32; the tile's parts cover them.
        turn: Index among the tiles that fetch; behind the last one if it fetches nothing.
        pace: Cache lines to fetch in one step over K, times PACE.
        panel: The part of K; None is all of it.
    """

    block: Any
    column: Any
    width: int
    turn: Any = 0
    pace: Any = 0
    panel: Panel | None = None

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

    def extent(self, total: int) -> tuple[Any, Any]:
        """First step over K and number of steps, of ``total`` over all of K."""
        return (0, total) if self.panel is None else self.panel.extent(total)


def fetch_ahead(w: Any, place: Place, step: Any) -> None:
    """In a step over K, fetch some lines of the weights that come next into the second-level cache.

    Args:
        w: Packed weights [B, steps, 64, ...], 256 bytes a step.
        place: Of the tile.
        step: The current step over all of K.
    """
    blocks, total = int(w.shape[0]), int(w.shape[1])
    panel, lines = place.panel, place.lines
    steps = total if panel is None else panel.steps(total)
    if 256 * steps > FETCH_BYTES:
        return
    at_once = lines // 2  # the pace of two tiles
    done = step if panel is None else step - panel.index * steps
    line = (place.turn * steps + done) * place.pace // PACE
    line = tir.bind(tir.min(line, steps * lines - at_once))
    if panel is None:
        block, column = place.next()
        block, origin = tir.min(block, blocks - 1), 0
    else:
        # Behind the last row of a block is the first one of the next, and nothing behind the last.
        block, column, origin = place.block, place.column, tir.bind((panel.index + 1) * steps)
    for offset in range(at_once):
        at = line + offset
        channel = column + at % lines * 16
        spot = [block, origin + at // lines, channel, *[0] * (len(w.shape) - 3)]
        read, second_level, data = tir.int32(0), tir.int32(2), tir.int32(1)
        address = tir.address_of(w[tuple(spot)])
        name = "llvm.prefetch"
        tir.evaluate(tir.call_llvm_intrin("void", name, address, read, second_level, data))
