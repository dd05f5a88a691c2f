"""bfloat16 matmuls by tiles of AMX: against float64, bits of a row alone, counted instructions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from tests.amx.model import TARGET, has_amx, model
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.matmul_cases import assembly, assert_close, float_case, run

#: Whole and ragged N and K: K of whole steps, one that leaves an odd channel, less than a step.
CONFIGS = [
    FloatMatmul(192, 256, "bfloat16"),
    FloatMatmul(100, 77, "bfloat16", bias=True),
    FloatMatmul(64, 30, "bfloat16"),
]
#: More than a chunk of rows that threads share.
ROWS = 150
#: One row, parts of a tile, one, two, and what is left.
SLICES = [(0, 1), (149, 150), (3, 10), (0, 16), (5, 22), (40, 72), (1, 34), (7, 120)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_matches_float64_and_a_row_has_its_bits_in_any_batch(config: Any, amx: Isa) -> None:
    x, operands, expected = float_case(config, ROWS)
    whole = run(config, amx, [x, *operands])
    assert_close(whole, expected, 115)
    for start, stop in SLICES:
        part = run(config, amx, [x[start:stop], *operands])
        np.testing.assert_array_equal(part, whole[start:stop])


@pytest.mark.parametrize(
    "config",
    [
        FloatExperts(70, 130, "bfloat16", bias=True, experts=4, chosen=3, spread=True),
        FloatExperts(64, 96, "bfloat16", experts=9, chosen=2),
    ],
    ids=lambda config: config.name,
)
def test_experts_match_float64_whatever_the_batch_mates(config: Any, amx: Isa) -> None:
    check(case_of(config, 70 if config.spread else 70 * config.chosen), amx, 115)


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_all_products_of_whole_steps_are_of_tiles(rows: int, amx: Isa) -> None:
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    config = CONFIGS[0]
    x, operands, _ = float_case(config, rows)
    model().counts()
    run(config, amx, [x, *operands])
    counts = model().counts()
    assert counts.bf16_multiply_adds == rows * config.n * config.k
    assert counts.bf16_dots == -(-rows // 16) * config.n // 16 * config.k // 32


def test_float32_weights_have_no_tiles(amx: Isa) -> None:
    assert "%tmm" not in assembly(FloatMatmul(64, 64), amx)


def test_inner_loops_are_of_tiles() -> None:
    """Two halves of 32 rows and 32 columns, and 16 rows by 64 columns."""
    text = assembly(FloatMatmul(64, 2048, "bfloat16"), isa_of(TARGET))
    blocks = re.split(r"^\.LBB\d+_\d+:", text, flags=re.MULTILINE)
    loops = [block for block in blocks if "tdpbf16ps" in block]
    assert [loop.count("tdpbf16ps") for loop in loops] == [4] * len(loops)
    assert sorted(loop.count("tileloadd") for loop in loops) in ([4, 5], [4, 4, 5])
    assert not any(re.search(r"%[xyz]mm|tilestored|ldtilecfg", loop) for loop in loops)
