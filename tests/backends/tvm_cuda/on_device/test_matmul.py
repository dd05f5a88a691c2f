"""Matmuls on this machine's CUDA device: exact integers, float64, and the same bits in any rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm_cuda.kernels import matmul
from tests.backends.tvm.kernel_cases import DEVICE
from tests.backends.tvm.kernels.matmul import test_matmul_int as cpu
from tests.backends.tvm.matmul_cases import assert_close, float_case, int_case, run

#: Rows of one kernel and of the other, and of blocks of threads that are not full.
ROWS = 131
#: Parts of them: whole and ragged blocks of the kernels for few (up to 8, 16, 32, 64) and for many.
PARTS = [(0, 1), (40, 56), (50, 53), (60, 77), (10, 60), (60, 131), (130, 131)]
INTEGERS = [
    *cpu.COMMON,
    IntMatmul(72, 1000, 8, 32, asymmetric=True),
    IntMatmul(64, 2100, 4, 64),
    IntMatmul(64, 1600),
]
FLOATS = [
    FloatMatmul(100, 333, "bfloat16", bias=True),
    FloatMatmul(64, 1024, "bfloat16"),
    FloatMatmul(130, 50, "bfloat16"),
    FloatMatmul(96, 200, "float32", bias=True),
    FloatMatmul(70, 37, "float32"),
]


def check_integers(config: IntMatmul) -> None:
    """All rows at once are right, and some of them have the same bits."""
    case = int_case(config, ROWS)
    whole = run(config, DEVICE, case.inputs())
    assert_close(whole, case.expected(), 125)
    for start, stop in PARTS:
        part = run(config, DEVICE, case.inputs(slice(start, stop)))
        np.testing.assert_array_equal(part, whole[start:stop])


#: Widths, groups and corrections that the others have, too, or that values without saturation show.
MUCH_ALIKE = (
    IntMatmul(192, 256),
    IntMatmul(64, 96, 8, 64, asymmetric=True),
    IntMatmul(200, 256, 4, 32),
    IntMatmul(64, 256, 4, asymmetric=True),
    FloatMatmul(64, 1024, "bfloat16"),
)


def shown(configs: Sequence[Any]) -> list[ParameterSet]:
    """Tests of configurations, of which some are long."""
    long = pytest.mark.long
    return [
        pytest.param(one, id=one.name, marks=[long] if one in MUCH_ALIKE else []) for one in configs
    ]


@pytest.mark.parametrize("config", shown(INTEGERS))
def test_integers_are_exact_and_rows_keep_their_bits(config: IntMatmul) -> None:
    check_integers(config)


@pytest.mark.parametrize(
    "config",
    [IntMatmul(72, 200), IntMatmul(72, 200, 4, 0, asymmetric=True, bias=True)],
    ids=lambda config: config.name,
)
def test_larger_tiles_of_many_rows(config: IntMatmul, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of large weights; no other test has such a configuration, which is compiled once."""
    monkeypatch.setattr(matmul, "_MANY_BLOCKS", 1)
    check_integers(config)


@pytest.mark.parametrize(
    "config",
    [IntMatmul(64, 256, 8, 0, asymmetric=True), IntMatmul(64, 256, 4, asymmetric=True)],
    ids=lambda config: config.name,
)
def test_extreme_values_do_not_saturate(config: IntMatmul) -> None:
    cpu.test_extreme_values_do_not_saturate(config, DEVICE)


@pytest.mark.parametrize("config", shown(FLOATS))
def test_floats_match_float64_and_rows_keep_their_bits(config: FloatMatmul) -> None:
    x, operands, expected = float_case(config, ROWS)
    whole = run(config, DEVICE, [x, *operands])
    assert_close(whole, expected, 120)
    for start, stop in PARTS:
        part = run(config, DEVICE, [x[start:stop], *operands])
        np.testing.assert_array_equal(part, whole[start:stop])
