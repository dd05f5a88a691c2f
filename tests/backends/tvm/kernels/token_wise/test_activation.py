from __future__ import annotations

import math

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.activation import GatedActivation, gated_activation
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import (
    TARGETS,
    Array,
    blank,
    blank_quantized,
    isa_named,
    quantized,
    quantized_16,
    run,
)

_ERF = np.vectorize(math.erf)
ORACLES = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + _ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def gate_up(rows: int, width: int) -> Array:
    values = np.random.default_rng(width).standard_normal((rows, 2 * width)) * 6
    values[0, :4] = (-100, 100, 0, -88)
    return values.astype(np.float32)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("width", [40, 96])
def test_against_float64(target: str, name: str, width: int) -> None:
    isa, x = isa_named(target), gate_up(6, width)
    out = run(GatedActivation(width, name), isa, x, blank(6, width))[-1]
    gate, up = np.split(x.astype(np.float64), 2, axis=1)
    expected = ORACLES[name](gate) * up
    assert (np.abs(out - expected) <= 1e-6 * np.abs(expected) + 3e-7 * np.abs(gate * up)).all()
    fused = GatedActivation(width, name, quantized=True)
    outputs = run(fused, isa, x, *blank_quantized(6, width))[1:]
    for output, wanted in zip(outputs, quantized(out), strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [40, 96])
def test_16_bits_are_those_of_the_result(target: str, width: int) -> None:
    isa, x = isa_named(target), gate_up(6, width)
    out = run(GatedActivation(width, "silu"), isa, x, blank(6, width))[-1]
    fused = GatedActivation(width, "silu", quantized=True, bits=16)
    outputs = run(fused, isa, x, *blank_quantized(6, width, 16))[1:]
    for output, wanted in zip(outputs, quantized_16(out), strict=True):
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("alpha", "limit", "shift"), [(1.702, 7.0, 1.0), (1.0, 4.0, 0.0)])
def test_clamped_against_float64(target: str, alpha: float, limit: float, shift: float) -> None:
    isa, x, width = isa_named(target), gate_up(6, 40), 40
    parts = {"alpha": alpha, "limit": limit, "up_shift": shift}
    out = run(GatedActivation(width, "silu", **parts), isa, x, blank(6, width))[-1]
    gate, up = np.split(x.astype(np.float64), 2, axis=1)
    held, factor = np.minimum(gate, limit), np.clip(up, -limit, limit) + shift
    expected = held / (1 + np.exp(-alpha * held)) * factor
    assert (gate > limit).any()
    assert (np.abs(up) > limit).any()
    # alpha * gate is rounded to float32 before the exponential
    assert (np.abs(out - expected) <= 4e-6 * np.abs(expected) + 3e-7 * np.abs(held * factor)).all()
    fused = GatedActivation(width, "silu", quantized=True, **parts)
    outputs = run(fused, isa, x, *blank_quantized(6, width))[1:]
    for output, wanted in zip(outputs, quantized(out), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_gates_that_there_are_not_are_refused() -> None:
    for parts in ({"limit": -1.0}, {"alpha": 2.0}):
        with pytest.raises(UnsupportedError, match="no gelu gate has limit"):
            GatedActivation(8, "gelu", **parts)


def test_rows_and_instruction_sets_agree_bit_for_bit() -> None:
    x = gate_up(60, 96)  # goes parallel
    results = [
        run(GatedActivation(96, "silu"), isa_named(target), x, blank(60, 96))[-1]
        for target in TARGETS
    ]
    np.testing.assert_array_equal(*results)
    alone = run(GatedActivation(96, "silu"), isa_named(TARGETS[1]), x[41:42], blank(1, 96))[-1]
    np.testing.assert_array_equal(alone[0], results[0][41])


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="activation 'relu' has no CPU kernel") as caught:
        gated_activation(GatedActivation(8, "relu"), isa_named(TARGETS[1]))
    assert "silu, gelu, gelu_tanh" in caught.value.hint
