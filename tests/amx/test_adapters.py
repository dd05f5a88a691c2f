"""LoRA adapters by tiles of AMX: against float64, bits of rows alone, counted tiles."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.token_wise.adapters import AdapterGrow, AdapterShrink
from tests.amx.model import Counts, has_amx, model
from tests.backends.tvm.adapter_cases import check_grow, check_shrink
from tests.backends.tvm.kernel_cases import blank, run

#: Slots and rows of runs: prompts longer than a run's tiles, single rows, rows without an adapter.
RUNS = [(1, 70), (-1, 3), (0, 1), (2, 1), (0, 17), (-1, 1), (0, 16), (2, 33)]
ADAPTERS = np.concatenate([np.full(rows, slot, np.int32) for slot, rows in RUNS])

#: Signal to noise, dB: pieces leave out 2**-18 of a value.
LEAST = 100


@pytest.mark.parametrize(
    ("bits", "k", "width"), [(0, 64, 16), (8, 130, 48), (16, 41, 16), (0, 77, 32)]
)
def test_shrink(amx: Isa, bits: int, k: int, width: int) -> None:
    check_shrink(amx, bits, ADAPTERS, k, width, LEAST)


@pytest.mark.parametrize(
    ("n", "rank", "starts"), [(64, 16, (0,)), (200, 48, (0, 100, 171)), (7, 32, (0, 3))]
)
def test_grow(amx: Isa, n: int, rank: int, starts: tuple[int, ...]) -> None:
    check_grow(amx, ADAPTERS, n, rank, starts, LEAST)


def _counted(amx: Isa, rows: int, *, grow: bool) -> Counts:
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    adapters = np.zeros(rows, np.int32)
    model().counts()
    if grow:
        y, h, b = (np.ones(shape, np.float32) for shape in ((rows, 64), (rows, 16), (3, 16, 64)))
        run(AdapterGrow(64, 16, (0,)), amx, y, h, adapters, b, blank(rows, 64))
    else:
        q, a = np.ones((rows, 64), np.int8), np.ones((3, 64, 16), np.float32)
        scale = np.ones(rows, np.float32)
        run(AdapterShrink(64, 16, True), amx, q, scale, adapters, a, blank(rows, 16))
    return model().counts()


def test_tile_instructions(amx: Isa) -> None:
    """Of 64 rows, a product of int8 is two of tiles, and one of float32 three."""
    shrunk, grown = _counted(amx, 64, grow=False), _counted(amx, 64, grow=True)
    assert shrunk.bf16_multiply_adds == 2 * 64 * 64 * 16
    assert shrunk.bf16_dots == shrunk.bf16_multiply_adds // 8192
    assert grown.bf16_multiply_adds == 3 * 64 * 16 * 64
    assert _counted(amx, 1, grow=False).bf16_multiply_adds == shrunk.bf16_multiply_adds // 64
