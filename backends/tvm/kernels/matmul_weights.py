"""How packed integer weights become vectors of u8, four input channels of a column in each lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul_places import Place, fetch_ahead

#: ``use(k, vectors)``: u8 vectors of four input channels from k on, one for each ``lanes`` columns.
Use = Callable[[Any, list[Any]], None]


class Weights(Protocol):
    """The weights of a matmul, as its tiles read them."""

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """Emit the loop over the input channels of one group or panel, four of them at a time.

        Args:
            place: Of the tile.
            group: Index of the group; 0 where the sums run over all of K, or the place's panel.
            column: First column of the vectors within the block.
            count: Vectors.
            use: Called with the first channel and the vectors.
        """
        ...


@dataclass(frozen=True)
class PackedWeights:
    """Stored bytes, or nibbles, as they are.

    Attributes:
        w: u8 [B, Kp / 4, 64, 4] (8 bits) or [B, Kp / 8, 64, 4] (4 bits).
        bits: 8 or 4.
        group_size: Input channels of a group; 0 is all of K.
        isa: What the kernel is compiled for.
        fetch: Whether tiles fetch the next block's weights.
    """

    w: Any
    bits: int
    group_size: int
    isa: Isa
    fetch: bool

    def each_four(self, place: Place, group: Any, column: Any, count: int, use: Use) -> None:
        """One or two times four channels from each row of packed weights."""
        lanes = self.isa.lanes
        depth = 32 // self.bits  # input channels of one step
        total = int(self.w.shape[1])
        start, number = place.extent(total, depth)
        if self.group_size:
            steps = self.group_size // depth
            start = group * steps
            number = steps if total % steps == 0 else tir.min(steps, total - start)
        with tir.serial(number) as step:
            index = tir.bind(start + step)
            if self.fetch:
                fetch_ahead(self.w, place, index, column, count * lanes)
            for half in range(depth // 4):
                vectors = []
                for c in range(count):
                    spot = [place.block, index, column + c * lanes, 0]
                    raw = self.w.vload(spot, f"uint8x{4 * lanes}")
                    vectors.append(tir.bind(nibbles(raw, half, lanes) if self.bits == 4 else raw))
                use(index * depth + half * 4, vectors)


def nibbles(packed: Any, half: int, lanes: int) -> Any:
    """The low (``half`` 0) or high nibbles of u8 lanes; shifted as words, then masked."""
    words = tir.reinterpret(packed, dtype=f"uint16x{2 * lanes}")
    if half:
        words = tir.shift_right(words, tir.broadcast(tir.uint16(4), 2 * lanes))
    mask = tir.broadcast(tir.uint16(0x0F0F), 2 * lanes)
    return tir.reinterpret(tir.bitwise_and(words, mask), dtype=f"uint8x{4 * lanes}")


def high_pairs(packed: Any, four: int, lanes: int) -> Any:
    """Bits 4 and 5 of the values of four channels, u8 lanes: the pair ``four`` of packed bytes."""
    words, count = tir.reinterpret(packed, dtype=f"uint16x{2 * lanes}"), 2 * lanes
    if four < 2:
        words = tir.shift_left(words, tir.broadcast(tir.uint16(4 - 2 * four), count))
    elif four == 3:
        words = tir.shift_right(words, tir.broadcast(tir.uint16(2), count))
    mask = tir.broadcast(tir.uint16(0x3030), count)
    return tir.reinterpret(tir.bitwise_and(words, mask), dtype=f"uint8x{4 * lanes}")
