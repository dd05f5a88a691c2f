from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.norm import HeadRMSNorm, RMSNorm
from tests.backends.tvm.kernel_cases import (
    TARGETS,
    Array,
    blank,
    blank_quantized,
    isa_named,
    quantized,
    quantized_16,
    run,
    sqnr,
)

EPSILON = 1e-5


def operands(rows: int, width: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(width)
    x, residual = rng.standard_normal((2, rows, width)).astype(np.float32) * 3
    return x, residual, rng.standard_normal(width).astype(np.float32)


def rms(x: Array, scale: Array) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + EPSILON) * scale


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [21, 64, 100, 576])
@pytest.mark.parametrize("residual", [False, True])
def test_rms_norm(target: str, width: int, residual: bool) -> None:
    isa = isa_named(target)
    x, before, scale = operands(7, width)
    config = RMSNorm(width, EPSILON, residual=residual)
    extra = ([before], [blank(7, width)]) if residual else ([], [])
    arrays = run(config, isa, *extra[0], x, scale, *extra[1], blank(7, width))
    value = before + x if residual else x
    expected = rms(value, scale)
    assert np.abs(arrays[-1] - expected).max() < 2e-6
    assert sqnr(arrays[-1], expected) > 130
    if residual:
        np.testing.assert_array_equal(arrays[3], value)
    fused = RMSNorm(width, EPSILON, residual=residual, quantized=True)
    q, s, sums = run(fused, isa, *extra[0], x, scale, *extra[1], *blank_quantized(7, width))[-3:]
    for output, wanted in zip((q, s, sums), quantized(arrays[-1]), strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [21, 576])
def test_16_bits_are_those_of_the_result(target: str, width: int) -> None:
    isa = isa_named(target)
    x, before, scale = operands(7, width)
    for given in ((x,), (before, x)):
        residual = len(given) > 1
        sums = [blank(7, width)] * residual
        plain = RMSNorm(width, EPSILON, residual=residual)
        normed = run(plain, isa, *given, scale, *sums, blank(7, width))[-1]
        fused = RMSNorm(width, EPSILON, residual=residual, quantized=True, bits=16)
        outputs = run(fused, isa, *given, scale, *sums, *blank_quantized(7, width, 16))[-3:]
        for output, wanted in zip(outputs, quantized_16(normed), strict=True):
            np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_head_rms_norm(target: str) -> None:
    x, _, _ = operands(5, 3 * 24)
    scale = operands(1, 24)[2]
    out = run(HeadRMSNorm(3, 24, EPSILON), isa_named(target), x, scale, blank(5, 72))[-1]
    expected = rms(x.reshape(5, 3, 24), scale).reshape(5, 72)
    assert np.abs(out - expected).max() < 2e-6


def test_rows_and_instruction_sets_agree_bit_for_bit() -> None:
    x, before, scale = operands(150, 576)  # 150 rows go parallel
    config = RMSNorm(576, EPSILON, residual=True)
    results = [
        run(config, isa_named(target), before, x, scale, blank(150, 576), blank(150, 576))[-1]
        for target in TARGETS
    ]
    np.testing.assert_array_equal(*results)
    row = slice(77, 78)
    alone = run(
        config, isa_named(TARGETS[1]), before[row], x[row], scale, blank(1, 576), blank(1, 576)
    )[-1]
    np.testing.assert_array_equal(alone, results[0][row])
