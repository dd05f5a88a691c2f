from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.pool_rows import PoolRows, pool_rows
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run

LENGTHS = (1, 5, 2, 40, 1, 17)


def oracle(mode: str, x: Array) -> Array:
    return {
        "mean": lambda: x.astype(np.float64).mean(axis=0),
        "max": lambda: x.max(axis=0),
        "first": lambda: x[0],
        "last": lambda: x[-1],
    }[mode]()


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["mean", "max", "first", "last"])
@pytest.mark.parametrize("width", [21, 64])
def test_against_float64(target: str, mode: str, width: int) -> None:
    starts = np.cumsum([0, *LENGTHS]).astype(np.int32)
    # some rows behind the last sequence belong to none
    x = np.random.default_rng(width).standard_normal((starts[-1] + 2, width)).astype(np.float32)
    out = run(PoolRows(width, mode), isa_named(target), x, starts, blank(len(LENGTHS), width))[-1]
    parts = [x[a:b] for a, b in pairwise(starts)]
    expected = np.array([oracle(mode, part) for part in parts])
    assert np.abs(out - expected).max() < (1e-6 if mode == "mean" else 1e-30)


@pytest.mark.parametrize("mode", ["mean", "max", "first"])
def test_first_rows_that_do_not_count(mode: str) -> None:
    x = np.random.default_rng(1).standard_normal((11, 21)).astype(np.float32)
    starts, isa = np.array([0, 4, 11], np.int32), isa_named(TARGETS[1])
    out = run(PoolRows(21, mode, skip=2), isa, x, starts, blank(2, 21))[-1]
    expected = np.array([oracle(mode, x[2:4]), oracle(mode, x[6:])])
    assert np.abs(out - expected).max() < 1e-6


def test_sequences_do_not_depend_on_each_other() -> None:
    isa = isa_named(TARGETS[1])
    x = np.random.default_rng(3).standard_normal((400, 200)).astype(np.float32)  # goes parallel
    starts = np.array([0, 90, 91, 400], np.int32)
    config = PoolRows(200, "mean")
    whole = run(config, isa, x, starts, blank(3, 200))[-1]
    alone = run(config, isa, x[:90], np.array([0, 90], np.int32), blank(1, 200))[-1]
    np.testing.assert_array_equal(alone[0], whole[0])


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"median.*\n?.*mean"):
        pool_rows(PoolRows(8, "median"), isa_named(TARGETS[1]))
