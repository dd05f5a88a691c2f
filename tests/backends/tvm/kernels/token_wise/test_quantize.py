from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.quantize import Quantize
from tests.backends.tvm.kernel_cases import TARGETS, blank_quantized, isa_named, quantized, run


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [8, 21, 64, 100, 576])
def test_equals_numpy_exactly(target: str, width: int) -> None:
    x = np.random.default_rng(width).standard_normal((9, width)).astype(np.float32) * 3
    x[2] = 0
    x[3, : width // 2] = np.arange(width // 2) + 0.5  # ties, if the scale is one
    x[3, -1] = 127
    outputs = run(Quantize(width), isa_named(target), x, *blank_quantized(9, width))[1:]
    for output, expected in zip(outputs, quantized(x), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_many_rows_equal_single_rows() -> None:
    isa = isa_named(TARGETS[-1])
    x = np.random.default_rng(1).standard_normal((200, 576)).astype(np.float32)  # goes parallel
    together = run(Quantize(576), isa, x, *blank_quantized(200, 576))[1:]
    for row in (0, 77, 199):
        alone = run(Quantize(576), isa, x[row : row + 1], *blank_quantized(1, 576))[1:]
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(many[row], one[0])
