from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.layer_norm import LayerNorm
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


def operands(rows: int, width: int) -> tuple[Array, Array, Array, Array]:
    """x and a residual, off centre; a scale and a bias."""
    rng = np.random.default_rng(width)
    x, residual = rng.standard_normal((2, rows, width)).astype(np.float32) * 3 + 10
    return (x, residual, *rng.standard_normal((2, width)).astype(np.float32))


def oracle(x: Array, scale: Array, bias: Array | float) -> Array:
    value = x.astype(np.float64)
    value -= value.mean(-1, keepdims=True)
    return value / np.sqrt(np.square(value).mean(-1, keepdims=True) + EPSILON) * scale + bias


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [21, 37, 64, 384])
def test_against_float64(target: str, bias: bool, width: int) -> None:
    x, _, scale, shift = operands(5, width)
    config = LayerNorm(width, EPSILON, bias=bias)
    out = run(config, isa_named(target), x, scale, *[shift] * bias, blank(5, width))[-1]
    expected = oracle(x, scale, shift if bias else 0.0)
    assert np.abs(out - expected).max() < 2e-5
    assert sqnr(out, expected) > 110


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [21, 64, 100, 384])
def test_fused_parts_are_those_of_the_steps_one_by_one(target: str, width: int) -> None:
    isa = isa_named(target)
    x, residual, scale, bias = operands(7, width)
    plain = run(LayerNorm(width, EPSILON), isa, residual + x, scale, bias, blank(7, width))[-1]

    config = LayerNorm(width, EPSILON, residual=True, sum=True)
    total, out = run(config, isa, residual, x, scale, bias, blank(7, width), blank(7, width))[-2:]
    np.testing.assert_array_equal(total, residual + x)
    np.testing.assert_array_equal(out, plain)

    config = LayerNorm(width, EPSILON, residual=True, quantized=True)
    results = [blank(7, width), *blank_quantized(7, width)]
    out, *rounded = run(config, isa, residual, x, scale, bias, *results)[-4:]
    np.testing.assert_array_equal(out, plain)
    for output, wanted in zip(rounded, quantized(plain), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_16_bits_are_those_of_the_result() -> None:
    isa = isa_named(TARGETS[1])
    x, _, scale, bias = operands(3, 70)
    plain = run(LayerNorm(70, EPSILON), isa, x, scale, bias, blank(3, 70))[-1]
    config = LayerNorm(70, EPSILON, plain=False, quantized=True, bits=16)
    rounded = run(config, isa, x, scale, bias, *blank_quantized(3, 70, 16))[-3:]
    for output, wanted in zip(rounded, quantized_16(plain), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_rows_and_instruction_sets_agree_bit_for_bit() -> None:
    x, residual, scale, bias = operands(150, 384)  # 150 rows go parallel
    config = LayerNorm(384, EPSILON, residual=True)
    results = [
        run(config, isa_named(target), residual, x, scale, bias, blank(150, 384))[-1]
        for target in TARGETS
    ]
    np.testing.assert_array_equal(*results)
    alone = run(config, isa_named(TARGETS[1]), residual[7:8], x[7:8], scale, bias, blank(1, 384))
    np.testing.assert_array_equal(alone[-1][0], results[1][7])
