from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.kv.head_concat import HeadConcat
from tests.backends.tvm.kernel_cases import TARGETS, blank, isa_named, run


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("first", "second", "shared"), [(8, 24, True), (5, 19, True), (17, 3, False)]
)
def test_heads_side_by_side(target: str, first: int, second: int, shared: bool) -> None:
    heads, rows = 3, 5
    rng = np.random.default_rng(first)
    a = rng.standard_normal((rows, 1 if shared else heads, first)).astype(np.float32)
    b = rng.standard_normal((rows, heads, second)).astype(np.float32)
    config = HeadConcat(heads, first, second, shared)
    width = heads * (first + second)
    out = run(
        config, isa_named(target), a.reshape(rows, -1), b.reshape(rows, -1), blank(rows, width)
    )[-1]
    each = np.broadcast_to(a, (rows, heads, first))
    np.testing.assert_array_equal(out, np.concatenate([each, b], -1).reshape(rows, width))
