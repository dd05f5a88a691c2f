"""Integer matmuls by tiles of AMX: exact, with VNNI's bits, and how many instructions they take."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from tests.amx.model import TARGET, Counts, has_amx, model
from tests.backends.tvm.matmul_cases import (
    V4,
    IntCase,
    assembly,
    assert_close,
    int_case,
    isa_that_runs,
    run,
    two_level_case,
)

#: Whole and ragged N and K: K of whole steps, one that leaves half a step, less than a step.
CONFIGS: list[Any] = [
    IntMatmul(192, 256),
    IntMatmul(100, 77, bias=True),
    IntMatmul(64, 30, asymmetric=True),
    IntMatmul(72, 288, 4, asymmetric=True, bias=True),
    TwoLevelMatmul(100, 288, bias=True),
]
#: More than a chunk of rows that threads share; one tile, a part of one, two, and what is left.
ROWS = 150
SLICES = [(0, 1), (3, 10), (3, 11), (0, 16), (5, 22), (40, 72), (1, 34), (7, 120)]


def _case(config: Any) -> tuple[IntCase, list[Any]]:
    if isinstance(config, IntMatmul):
        case = int_case(config, ROWS)
        return case, case.inputs()
    case, weights = two_level_case(config, ROWS)
    return case, [*case.inputs()[:3], *weights]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_exact_integers_scaled_with_the_bits_of_vnni(config: Any, amx: Isa) -> None:
    case, inputs = _case(config)
    whole = run(config, amx, inputs)
    assert_close(whole, case.expected(), 125)
    np.testing.assert_array_equal(whole, run(config, isa_that_runs(V4.name), inputs))
    for start, stop in SLICES:
        part = run(config, amx, [*(x[start:stop] for x in inputs[:3]), *inputs[3:]])
        np.testing.assert_array_equal(part, whole[start:stop])


def test_extreme_values_are_exact(amx: Isa) -> None:
    config = IntMatmul(64, 256, asymmetric=True)
    case = int_case(config, rows=16)
    ones = np.ones((64, 1), np.float32), np.ones(16, np.float32)
    x = np.full((16, 256), 127, np.int8)
    x[1::2] = -127
    case = replace(case, stored=np.full_like(case.stored, 255), x=x, scales=ones[0])
    case = replace(case, x_scale=ones[1], zeros=np.zeros_like(case.zeros))
    np.testing.assert_array_equal(run(config, amx, case.inputs()), case.expected())


def _counted(config: IntMatmul, rows: int, amx: Isa) -> Counts:
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    inputs = int_case(config, rows).inputs()
    model().counts()
    run(config, amx, inputs)
    return model().counts()


def test_few_rows_are_multiplied_without_tiles(amx: Isa) -> None:
    config = CONFIGS[0]
    assert _counted(config, 7, amx).dots == 0
    assert _counted(config, 8, amx).dots > 0


def test_tile_instructions_of_a_prompt(amx: Isa) -> None:
    """Of 32 rows, a step of 64 channels and 32 columns: 4 products of 16384 multiply-adds each, 2
    loads of rows and 2 of weights. VNNI takes an instruction for 64 multiply-adds."""
    config, rows = CONFIGS[0], 64
    counts = _counted(config, rows, amx)
    work = rows * config.n * config.k
    assert counts.multiply_adds == work
    assert (counts.dots, counts.load) == (work // 16384, work // 16384)
    passes = work // 16384 // 4 // (config.k // 64)
    assert (counts.zero, counts.store) == (4 * passes, 4 * passes)
    assert counts.config == passes / 2
    assert counts.release == config.n // 64


def test_one_tile_of_rows_reads_each_weight_once(amx: Isa) -> None:
    config = CONFIGS[0]
    counts = _counted(config, 16, amx)
    assert counts.dots == 16 * config.n * config.k // 16384
    assert counts.load == counts.dots + counts.dots // 4


def test_inner_loops_are_of_tiles() -> None:
    """Two halves of 32 rows and 32 columns, and 16 rows by 64 columns; beside tiles they have
    addresses and fetches alone."""
    config = IntMatmul(64, 2048)
    text = assembly(config, isa_of(TARGET))
    blocks = re.split(r"^\.LBB\d+_\d+:", text, flags=re.MULTILINE)
    loops = [block for block in blocks if "tdpbsud" in block]
    assert [loop.count("tdpbsud") for loop in loops] == [4, 4, 4]
    assert sorted(loop.count("tileloadd") for loop in loops) == [4, 4, 5]
    assert not any(re.search(r"%[xyz]mm|tilestored|ldtilecfg", loop) for loop in loops)
    assert "%tmm" not in assembly(config, isa_of(V4))
