from __future__ import annotations

import math

import numpy as np
import pytest

from optc.backends.tvm.kernels.token_wise.elementwise import Elementwise, elementwise
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run

WIDTH = 1000


def unary(target: str, operation: str, x: Array, constant: float = 0.0) -> Array:
    config = Elementwise(operation, x.shape[1], constant)
    return run(config, isa_named(target), x, blank(*x.shape))[-1]


def relative_error(out: Array, expected: Array) -> float:
    scale = np.maximum(np.abs(expected), np.finfo(np.float32).tiny)
    return float((np.abs(out - expected) / scale).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("operation", "oracle", "low", "high"),
    [
        ("exp", np.exp, -87.3, 88.3),
        ("exp", np.exp, -0.01, 0.01),
        ("tanh", np.tanh, -12.0, 12.0),
        ("tanh", np.tanh, -1e-3, 1e-3),
        ("erf", np.vectorize(math.erf), -5.0, 5.0),
        ("erf", np.vectorize(math.erf), -1e-3, 1e-3),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0),
    ],
)
def test_functions_to_two_parts_in_ten_million(
    target: str, operation: str, oracle: object, low: float, high: float
) -> None:
    x = np.random.default_rng(3).uniform(low, high, (11, WIDTH)).astype(np.float32)
    assert callable(oracle)
    assert relative_error(unary(target, operation, x), oracle(x.astype(np.float64))) < 3e-7


@pytest.mark.parametrize("target", TARGETS)
def test_extremes(target: str) -> None:
    x = np.array([[0.0, -1e30, 1e30, -90.0, 4.0, -4.0, 100.0, -100.0]], np.float32)
    exp = unary(target, "exp", x)[0]
    assert exp[0] == 1
    assert exp[1] == 0
    assert exp[3] == 0
    assert np.isfinite(exp).all()
    assert unary(target, "tanh", x)[0, :3].tolist() == [0, -1, 1]
    assert unary(target, "erf", x)[0, :3].tolist() == [0, -1, 1]
    np.testing.assert_array_equal(unary(target, "silu", x)[0, [0, 6]], [0, 100])


@pytest.mark.parametrize("target", TARGETS)
def test_binary_scale_and_softcap(target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40, 37)).astype(np.float32)
    for operation, function in (
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("div", np.divide),
    ):
        out = run(Elementwise(operation, 37), isa_named(target), a, b, blank(40, 37))[-1]
        np.testing.assert_array_equal(out, function(a, b))
    np.testing.assert_array_equal(unary(target, "scale", a, 1.7), a * np.float32(1.7))
    capped = unary(target, "softcap", a * 50, 30.0)
    expected = 30 * np.tanh((a * 50).astype(np.float64) / 30)
    assert relative_error(capped, expected) < 5e-7


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="operation 'cosh' has no CPU kernel") as caught:
        elementwise(Elementwise("cosh", 8), isa_named(TARGETS[1]))
    assert "softcap" in caught.value.hint
