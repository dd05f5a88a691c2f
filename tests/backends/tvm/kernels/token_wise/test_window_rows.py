from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.window_rows import WindowRows
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run


def oracle(config: WindowRows, x: Array) -> Array:
    rows = []
    for sequence in x.reshape(-1, config.length, config.width):
        for window in range(config.windows):
            first = window * config.stride - config.before
            places = range(first, first + config.kernel)
            nothing = np.zeros(config.width, np.float32)
            inside = [sequence[p] if 0 <= p < config.length else nothing for p in places]
            rows.append(np.concatenate(inside))
    return np.array(rows)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "config",
    [
        WindowRows(width=21, kernel=3, stride=1, before=1, length=10, windows=10),
        WindowRows(width=64, kernel=3, stride=2, before=1, length=10, windows=5),
        WindowRows(width=5, kernel=4, stride=2, before=0, length=6, windows=3),
        WindowRows(width=80, kernel=3, stride=1, before=1, length=300, windows=300),  # parallel
    ],
)
def test_rows_are_those_of_a_convolution(target: str, config: WindowRows) -> None:
    x = np.random.default_rng(0).standard_normal((3 * config.length, config.width))
    x = x.astype(np.float32)
    out = blank(3 * config.windows, config.kernel * config.width)
    found = run(config, isa_named(target), x, out)[-1]
    np.testing.assert_array_equal(found, oracle(config, x))
