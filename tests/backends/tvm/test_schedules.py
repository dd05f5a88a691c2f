"""Schedules follow from the shape, the weights and the instruction set."""

from __future__ import annotations

import pytest

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.kernels.matmul.schedule import (
    Schedule,
    default_schedule,
    two_level_schedule,
)
from optc.system.hardware.target import known_targets

ISA = isa_of(known_targets()["x86-64-v4-vnni"])
NARROW = isa_of(known_targets()["x86-64-v3"])


def test_tiles_are_as_tall_as_sums_have_registers() -> None:
    assert default_schedule(2, 0, ISA) == Schedule(8, 6, 8)
    assert default_schedule(2, 0, NARROW) == Schedule(4, 0, 4)
    assert default_schedule(2, 32, ISA) == Schedule(4, 8, 4)
    assert default_schedule(2, 32, NARROW) == Schedule(4, 0, 4)
    assert two_level_schedule(2, ISA) == Schedule(8, 6, 8)
    assert two_level_schedule(2, NARROW) == Schedule(4, 4, 4)


@pytest.mark.parametrize("blocks", [1, 7, 9, 15])
def test_odd_blocks_are_split_in_halves_but_many_of_int8_on_avx512(blocks: int) -> None:
    assert default_schedule(blocks, 0, ISA) == Schedule(8, 8, 8, halves=blocks < 9)
    assert default_schedule(blocks, 0, NARROW) == Schedule(4, 4, 4, halves=True)
    assert default_schedule(blocks, 32, ISA) == Schedule(4, 8, 4, halves=True)
    assert default_schedule(blocks, 32, NARROW) == Schedule(4, 4, 4, halves=True)
    assert two_level_schedule(blocks, ISA) == Schedule(8, 8, 8, halves=True)
    assert two_level_schedule(blocks, NARROW) == Schedule(4, 4, 4, halves=True)
