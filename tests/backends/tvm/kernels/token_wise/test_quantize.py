from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.pair_sum import PairSum
from optc.backends.tvm.kernels.token_wise.quantize import Quantize
from tests.backends.tvm.kernel_cases import (
    TARGETS,
    blank,
    blank_quantized,
    isa_named,
    quantized,
    quantized_16,
    run,
    sqnr,
)


@pytest.mark.covering
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


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [8, 21, 64, 100, 576])
def test_rows_of_16_bits_are_two_of_8(target: str, width: int) -> None:
    x = np.random.default_rng(width).standard_normal((9, width)).astype(np.float32) * 3
    x[2] = 0
    x[3] = np.arange(width) * 127 + np.arange(width) % 3 - 1  # about halfway between high values
    x[3, -1] = 32512
    x[4, 0], x[5, 0] = -40, 40  # the largest magnitude of either sign
    config = Quantize(width, bits=16)
    q, s, sums = run(config, isa_named(target), x, *blank_quantized(9, width, 16))[1:]
    for output, expected in zip((q, s, sums), quantized_16(x), strict=True):
        np.testing.assert_array_equal(output, expected)
    assert np.abs(q.astype(np.int32)).max() <= 127  # no product of bytes overflows
    value = (q * s[:, None].astype(np.float64)).reshape(9, 2, -1).sum(axis=1)[:, :width]
    step = np.abs(x).max(axis=1, keepdims=True) / 32512
    assert (np.abs(value - x) <= 0.501 * step + 1e-6).all()
    assert sqnr(value, x) > (85 if width > 8 else 80)


@pytest.mark.parametrize("bits", [8, 16])
def test_many_rows_equal_single_rows(bits: int) -> None:
    isa, config = isa_named(TARGETS[-1]), Quantize(576, bits=bits)
    x = np.random.default_rng(1).standard_normal((200, 576)).astype(np.float32)  # goes parallel
    together = run(config, isa, x, *blank_quantized(200, 576, bits))[1:]
    for row in (0, 77, 199):
        alone = run(config, isa, x[row : row + 1], *blank_quantized(1, 576, bits))[1:]
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(
                many.reshape(200, bits // 8, -1)[row].ravel(), one.ravel()
            )


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("rows", "width", "bias"), [(1, 64, False), (5, 37, True), (90, 600, True)]
)
def test_results_of_two_rows_are_added(target: str, rows: int, width: int, bias: bool) -> None:
    rng = np.random.default_rng(width)
    y, more = rng.standard_normal((2 * rows, width)), rng.standard_normal(width)
    y, more = y.astype(np.float32), more.astype(np.float32)
    given = [y, more] if bias else [y]
    out = run(PairSum(width, bias), isa_named(target), *given, blank(rows, width))[-1]
    expected = y[::2] + y[1::2]
    np.testing.assert_array_equal(out, expected + more if bias else expected)
