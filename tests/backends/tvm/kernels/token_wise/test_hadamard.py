from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.activation import GatedActivation
from optc.backends.tvm.kernels.token_wise.hadamard import BlockHadamard
from optc.backends.tvm.kernels.token_wise.norm import RMSNorm
from optc.backends.tvm.kernels.token_wise.quantize import Quantize
from optc.runtime.executable.block_hadamard import block_hadamard
from tests.backends.tvm.kernel_cases import (
    TARGETS,
    blank,
    blank_quantized,
    isa_named,
    quantized,
    quantized_16,
    run,
)
from tests.support.hadamard import rotation

#: Whole blocks, one block more behind them, odd widths, and one block alone.
CASES = [
    (16, 16),
    (17, 16),
    (100, 64),
    (257, 256),
    (576, 64),
    pytest.param(577, 256, marks=pytest.mark.long),  # a block of 256 takes seconds to compile
]


def _rows(width: int, rows: int = 5) -> np.ndarray[Any, np.dtype[np.float32]]:
    x = np.random.default_rng(width).standard_normal((rows, width)).astype(np.float32)
    x[:, 3] *= 40  # a channel as large as those of trained models
    x[1] = 0
    return x


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("width", "block"), CASES)
@pytest.mark.parametrize("inverse", [False, True])
def test_rows_are_rotated(target: str, width: int, block: int, inverse: bool) -> None:
    x, matrix = _rows(width), rotation(width, block)
    config = BlockHadamard(width, block, inverse)
    out = run(config, isa_named(target), x, blank(5, width))[-1]
    np.testing.assert_array_equal(out, block_hadamard(x, block, inverse=inverse))
    exact = x.astype(np.float64) @ (matrix.T if inverse else matrix)
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-6 * np.abs(x).max())


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("width", "block", "bits"), [(100, 16, 8), (577, 64, 16), (640, 256, 8)])
def test_quantization_rotates_before_it_rounds(
    target: str, width: int, block: int, bits: int
) -> None:
    x = _rows(width)
    config = Quantize(width, bits, block)
    outputs = run(config, isa_named(target), x, *blank_quantized(5, width, bits))[1:]
    expected = (quantized if bits == 8 else quantized_16)(block_hadamard(x, block))
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("residual", [False, True])
def test_norms_give_the_bits_of_the_kernels_apart(target: str, residual: bool) -> None:
    isa, width, block = isa_named(target), 577, 64
    x, scale = _rows(width), np.linspace(-2, 2, width, dtype=np.float32)
    given = [_rows(width) + 1, x, scale] if residual else [x, scale]
    sums = [blank(5, width)] if residual else []
    plain = run(RMSNorm(width, 1e-5, residual), isa, *given, *sums, blank(5, width))[-1]
    config = RMSNorm(width, 1e-5, residual, quantized=True, hadamard=block)
    fused = run(config, isa, *given, *sums, *blank_quantized(5, width))[-3:]
    for output, wanted in zip(fused, quantized(block_hadamard(plain, block)), strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize(("target", "block"), zip(TARGETS, (64, 256), strict=True))
def test_gated_activations_give_the_bits_of_the_kernels_apart(target: str, block: int) -> None:
    isa, width = isa_named(target), 300
    gate_up = _rows(2 * width)
    plain = run(GatedActivation(width, "silu"), isa, gate_up, blank(5, width))[-1]
    config = GatedActivation(width, "silu", quantized=True, hadamard=block)
    fused = run(config, isa, gate_up, *blank_quantized(5, width))[-3:]
    for output, wanted in zip(fused, quantized(block_hadamard(plain, block)), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_many_rows_equal_single_rows() -> None:
    """By a kernel that is compiled above."""
    isa, config, width = isa_named(TARGETS[0]), Quantize(640, 8, 256), 640
    x = np.random.default_rng(1).standard_normal((200, width)).astype(np.float32)  # goes parallel
    together = run(config, isa, x, *blank_quantized(200, width))[1:]
    for row in (0, 77, 199):
        alone = run(config, isa, x[row : row + 1], *blank_quantized(1, width))[1:]
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(many[row : row + 1], one)
