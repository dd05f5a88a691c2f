"""Kernels of LoRA adapters against float64, and rows that do not depend on their batch mates."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from tests.backends.tvm.adapter_cases import SLOTS, check_grow, check_shrink
from tests.backends.tvm.kernel_cases import TARGETS, Array, isa_named


@pytest.fixture(params=TARGETS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return isa_named(request.param)


def _adapters(rows: int) -> Array:
    """Slots of rows in any order, the first with one."""
    adapters = np.random.default_rng(rows).integers(-1, SLOTS, rows).astype(np.int32)
    adapters[0] = 1
    return adapters


@pytest.mark.covering("isa", "bits")
@pytest.mark.parametrize("bits", [0, 8, 16])
@pytest.mark.parametrize(("rows", "k", "width"), [(1, 64, 16), (5, 41, 48), (33, 130, 16)])
def test_shrink(isa: Isa, bits: int, rows: int, k: int, width: int) -> None:
    check_shrink(isa, bits, _adapters(rows), k, width)


@pytest.mark.covering
@pytest.mark.parametrize(
    ("rows", "n", "rank", "starts"),
    [(1, 64, 16, (0,)), (4, 200, 32, (0, 100, 171)), (19, 96, 16, (0, 64)), (2, 7, 16, (0, 3))],
)
def test_grow(isa: Isa, rows: int, n: int, rank: int, starts: tuple[int, ...]) -> None:
    check_grow(isa, _adapters(rows), n, rank, starts)
