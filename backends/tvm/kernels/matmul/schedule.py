"""The cutting of the integer matmul's work, as data. Needs no TVM.

A schedule decides speed, never a bit of the results: every output element is computed by one tile,
in an order over K that no field here changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from optc.backends.tvm.isa import Isa

#: Rows up to which memory bounds a matmul: its blocks stay whole, because half of every row of a
#: block reads slowly from memory.
FEW_ROWS = 8
#: Tiles of more rows have more sums than any instruction set has registers.
MAX_TILE_ROWS = 12
#: Tiles that share the fetching of the next block's weights into the second-level cache while they
#: compute.
FETCHERS = 8
#: Rows that a task has at least where rows are split among threads as well.
CHUNK_ROWS = 48
#: Blocks from which on int8 was measured to be faster in whole blocks on AVX-512, if their number
#: is odd (ADR 0160).
WHOLE_BLOCKS = 9


#: Rows of the tallest tile of aarch64 that has two registers of sums for each of one.
TWOFOLD_ROWS = 3


@dataclass(frozen=True)
class Schedule:
    """Parameters of one kernel.

    Attributes:
        few: Rows of the tallest register tile where a step has up to eight rows.
        many: The same where it has more; 0 is the same code for both.
        wide: Rows of the tallest tile that has 64 columns; taller ones have 32.
        halves: With ``many``, tasks are half blocks, so that threads have equal work; without, and
            at few rows, they are whole.
    """

    few: int
    many: int = 0
    wide: int = MAX_TILE_ROWS
    halves: bool = False


def default_schedule(blocks: int, group_size: int, isa: Isa) -> Schedule:
    """The schedule of a matmul by weights in that many blocks of 64 output channels.

    With groups the float sums take as many registers as the integer sums. On 32 registers, tiles
    of eight rows and 32 columns unpack a weight half as often as four rows and 64. Where memory
    bounds, one tile of eight rows and 64 columns is faster than two, although some of its sums are
    not in registers. An odd number of blocks is split in halves, so that an even number of threads
    has equal work, but for `WHOLE_BLOCKS` of int8 and more on AVX-512.
    """
    odd, large = bool(blocks % 2), isa.lanes == 16
    tallest = 8 if large else isa.max_rows
    if group_size and isa.arm:
        return Schedule(TWOFOLD_ROWS, TWOFOLD_ROWS if odd else 0, halves=odd)
    if group_size:
        few = min(isa.max_rows, 4)
        return Schedule(few, tallest if tallest > few or odd else 0, wide=4, halves=odd)
    if odd:
        return Schedule(tallest, tallest, wide=tallest, halves=not large or blocks < WHOLE_BLOCKS)
    return Schedule(tallest, isa.max_rows if large else 0, wide=tallest)


def two_level_schedule(blocks: int, isa: Isa) -> Schedule:
    """That of a matmul by weights with integer scales: of int8 weights behind the unpacking.

    At up to eight rows tiles unpack in registers, and as tall ones as there can be do so once.
    An odd number of blocks is split in halves: whole blocks were not faster.
    """
    plain = default_schedule(blocks, 0, isa)
    few = FEW_ROWS if isa.lanes == 16 else TWOFOLD_ROWS if isa.arm else isa.max_rows
    return replace(plain, few=few, many=plain.many or plain.few, halves=bool(blocks % 2))
