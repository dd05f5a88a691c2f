"""How the integer matmul's work is cut up, as data. Needs no TVM.

A schedule decides speed, never a bit of the results: every output element is computed by one tile,
in an order over K that no field here changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.program import Call
from optc.errors import InputError

#: The kernels that have schedules.
KERNEL, TWO_LEVEL = "int_matmul", "two_level_matmul"
KERNELS = (KERNEL, TWO_LEVEL)
#: Rows up to which memory bounds a matmul: its blocks stay whole, because half of every row of a
#: block reads slowly from memory.
FEW_ROWS = 8
#: Tiles of more rows have more sums than any instruction set has registers.
MAX_TILE_ROWS = 12
#: How many tiles may share the fetching of the next weights.
FETCHERS = (0, 2, 4, 8)


@dataclass(frozen=True)
class Schedule:
    """Parameters of one kernel.

    Attributes:
        few: Rows of the tallest register tile where a step has up to eight rows.
        many: The same where it has more; 0 is the same code for both.
        wide: Rows of the tallest tile that has 64 columns; taller ones have 32.
        halves: With ``many``, tasks are half blocks, so that threads have equal work; without, and
            at few rows, they are whole.
        fetch: Tiles that share the fetching of the next block's weights into the second-level
            cache while they compute; 0 fetches nothing.
        chunk_rows: Rows that a task has at least where rows are split among threads as well.

    Raises:
        InputError: A value out of range.
    """

    few: int
    many: int = 0
    wide: int = MAX_TILE_ROWS
    halves: bool = False
    fetch: int = 8
    chunk_rows: int = 48

    def __post_init__(self) -> None:
        self._check("few", 1, MAX_TILE_ROWS)
        self._check("many", 0, MAX_TILE_ROWS)
        self._check("wide", 0, MAX_TILE_ROWS)
        self._check("chunk_rows", 1, 4096)
        if not isinstance(self.halves, bool) or (self.halves and not self.many):
            raise _refused("halves is true only together with many", "use true with many, or false")
        if type(self.fetch) is not int or self.fetch not in FETCHERS:
            raise _refused(f"fetch is {self.fetch!r}", f"use one of {list(FETCHERS)}")

    def _check(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= most:
            raise _refused(f"{name} is {value!r}", f"use a whole number from {least} to {most}")


@dataclass(frozen=True, order=True)
class Workload:
    """What a schedule is looked up by.

    Attributes:
        kernel: Name in the kernel table.
        isa: Name of the instruction set.
        n: Output channels N.
        k: Input channels K.
        bits: 8, 6, 5, 4, 3 or 2.
        group_size: Input channels that share a scale; 0 is one scale per channel.
        asymmetric: Whether there are zero points.

    A two-level matmul has zero points.
    """

    kernel: str
    isa: str
    n: int
    k: int
    bits: int
    group_size: int
    asymmetric: bool


def default_schedule(blocks: int, group_size: int, isa: Isa) -> Schedule:
    """The schedule of a shape that no database has.

    With groups the float sums take as many registers as the integer sums. On 32 registers, tiles
    of eight rows and 32 columns unpack a weight half as often as four rows and 64. Where memory
    bounds, one tile of eight rows and 64 columns is faster than two, although some of its sums are
    not in registers. An odd number of blocks is split in halves, so that an even number of threads
    has equal work.
    """
    odd, large = bool(blocks % 2), isa.lanes == 16
    tallest = 8 if large else isa.max_rows
    if group_size:
        few = min(isa.max_rows, 4)
        return Schedule(few, tallest if tallest > few or odd else 0, wide=4, halves=odd)
    if odd:
        return Schedule(tallest, tallest, wide=tallest, halves=True)
    return Schedule(tallest, isa.max_rows if large else 0, wide=tallest)


def two_level_schedule(blocks: int, isa: Isa) -> Schedule:
    """That of a matmul by weights with integer scales: of int8 weights behind the unpacking.

    At up to eight rows tiles unpack in registers, and as tall ones as there can be do so once.
    """
    plain = default_schedule(blocks, 0, isa)
    few = FEW_ROWS if isa.lanes == 16 else isa.max_rows
    return replace(plain, few=few, many=plain.many or plain.few)


def workload_of(call: Call, isa: Isa) -> Workload | None:
    """What the call's schedule is looked up by; None if its kernel has none."""
    if call.kernel not in KERNELS:
        return None
    config = {"asymmetric": True, **call.config}
    keys = ("n", "k", "bits", "group_size", "asymmetric")
    return Workload(call.kernel, isa.name, *(config[key] for key in keys))


def schedule_without(workload: Workload, isa: Isa) -> Schedule:
    """The schedule of a workload that no database has."""
    blocks = -(-workload.n // 64)
    if workload.kernel == TWO_LEVEL:
        return two_level_schedule(blocks, isa)
    return default_schedule(blocks, workload.group_size, isa)


def parse_schedule(value: Any) -> Schedule:
    """The schedule in a JSON object, which has every field and no other.

    Raises:
        InputError: A field is missing, unknown or out of range.
    """
    if not isinstance(value, dict):
        raise _refused(f"is not a JSON object but {type(value).__name__}", "see docs/bench.md")
    known = set(Schedule.__dataclass_fields__)
    wrong = sorted(known ^ set(value))
    if wrong:
        kind = "unknown" if wrong[0] in value else "missing"
        raise _refused(f"{kind} field {wrong[0]!r}", f"the fields are {', '.join(sorted(known))}")
    return Schedule(**value)


def _refused(message: str, hint: str) -> InputError:
    return InputError(message, where="schedule", hint=hint)
