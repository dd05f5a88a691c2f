"""Targets solve the least squares that they are stated to solve."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.calibrating.targets import Correction, Solver
from optc.passes.quantize.propagate.sums import drift_of, result_drift_of
from optc.proof.reference.streams.gram import hessian_of
from optc.proof.reference.streams.products import Float32Products
from optc.proof.reference.two_streams import Pair


def pairs(
    tokens: int = 4000, k: int = 24, n: int = 40, seed: int = 0
) -> tuple[np.ndarray, Pair, Pair]:
    """A weight, its inputs in both runs, and a residual in both."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((k, k))
    x = rng.standard_normal((4, tokens // 4, k)) @ basis
    noise = 0.2 * x @ rng.standard_normal((k, k)) / np.sqrt(k)
    r = rng.standard_normal((4, tokens // 4, n))
    gap = 0.3 * (x @ rng.standard_normal((k, n))) / k
    inputs, residual = (
        Pair((a + b).astype(np.float32), a.astype(np.float32)) for a, b in ((x, noise), (r, gap))
    )
    return rng.standard_normal((n, k)).astype(np.float32), inputs, residual


def lost(target: np.ndarray, weight: np.ndarray, inputs: Pair, residual: Pair) -> float:
    """Mean square of what the sum of residual and result loses."""
    wanted = residual.original + inputs.original @ weight.T
    return float(np.mean((residual.changed + inputs.changed @ target.T - wanted) ** 2))


def targets(strength: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Pair, Pair]:
    weight, inputs, residual = pairs(seed=seed)
    hessian = hessian_of(inputs.changed)
    drift = result_drift(weight, inputs, residual)
    correction = Correction(add=Solver(hessian, strength)(drift))
    return correction.target(weight, 0), weight, inputs, residual


def result_drift(weight: np.ndarray, inputs: Pair, residual: Pair) -> np.ndarray:
    sums = with_results(weight, inputs, residual)
    return result_drift_of(inputs.changed, sums, weight, None, Float32Products())


def with_results(weight: np.ndarray, inputs: Pair, residual: Pair) -> Pair:
    """The residual, and as it is the layer's result added to it."""
    return Pair(residual.changed, residual.original + inputs.original @ weight.T)


@pytest.mark.parametrize("seed", range(3))
def test_the_target_is_ridge_regression_towards_the_weight(seed: int) -> None:
    target, weight, inputs, residual = targets(seed=seed)
    x = inputs.changed.reshape(-1, weight.shape[1]).astype(np.float64)
    wanted = residual.original + inputs.original @ weight.T - residual.changed
    left = wanted.reshape(len(x), -1) - x @ weight.T.astype(np.float64)
    damping = 0.01 * np.mean(np.sum(x * x, axis=0))
    change = np.linalg.solve(x.T @ x + damping * np.eye(x.shape[1]), x.T @ left).T
    np.testing.assert_allclose(target, weight + change, atol=2e-4)
    assert lost(target, weight, inputs, residual) < 0.5 * lost(weight, weight, inputs, residual)


def test_half_the_strength_is_half_the_way() -> None:
    half, weight, *_ = targets(0.5)
    whole, *_ = targets(1.0)
    np.testing.assert_allclose(half - weight, 0.5 * (whole - weight), atol=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_a_mix_of_inputs_is_ridge_regression_of_the_result_alone(seed: int) -> None:
    weight, inputs, residual = pairs(seed=seed)
    nothing = Pair(np.zeros_like(residual.changed), np.zeros_like(residual.changed))
    hessian = hessian_of(inputs.changed)
    mix = Correction(Solver(hessian, 1.0)(drift_of(inputs)))
    add = Correction(add=Solver(hessian, 1.0)(result_drift(weight, inputs, nothing)))
    np.testing.assert_allclose(mix.target(weight, 0), add.target(weight, 0), atol=1e-4)


def test_inputs_that_are_always_zero_get_no_share() -> None:
    weight, inputs, _ = pairs()
    for one in (inputs.changed, inputs.original):
        one[..., 3] = 0
    correction = Correction(Solver(hessian_of(inputs.changed), 1.0)(drift_of(inputs)))
    target = correction.target(weight, 0)
    np.testing.assert_array_equal(target[:, 3], weight[:, 3])
    assert np.isfinite(target).all()


def test_rows_get_their_own_part() -> None:
    rng = np.random.default_rng(0)
    weight, mix, add = (
        rng.standard_normal(s).astype(np.float32) for s in ((600, 32), (32, 32), (600, 32))
    )
    wanted = weight + weight @ mix + add
    for start, stop in ((0, 600), (0, 1), (255, 257), (300, 600)):
        target = Correction(mix, add).target(weight[start:stop], start)
        np.testing.assert_allclose(target, wanted[start:stop], atol=1e-4)
    np.testing.assert_array_equal(Correction().target(weight, 0), weight)
