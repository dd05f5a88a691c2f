from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.experts.head_rows import MergeHeads, SplitHeads
from tests.backends.tvm.kernel_cases import TARGETS, blank, isa_named, run


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("heads", "width", "tokens"), [(3, 24, 5), (5, 19, 1), (1, 64, 4)])
def test_heads_as_rows_and_back(target: str, heads: int, width: int, tokens: int) -> None:
    isa = isa_named(target)
    x = np.random.default_rng(width).standard_normal((tokens, heads * width)).astype(np.float32)
    numbers = np.full((tokens, heads), -1, np.int32)
    *_, rows, numbers = run(SplitHeads(heads, width), isa, x, blank(tokens * heads, width), numbers)
    np.testing.assert_array_equal(rows, x.reshape(-1, width))
    np.testing.assert_array_equal(numbers, np.tile(np.arange(heads), (tokens, 1)))
    back = run(MergeHeads(heads, width), isa, rows, blank(tokens, heads * width))[-1]
    np.testing.assert_array_equal(back, x)
