"""What readers may be left with, beside least squares in NumPy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.numerics.scheme import Scheme
from optc.passes.prune.structured.channels import NEURONS, Channels, find_channels
from optc.passes.prune.to_budget.degrees import counts_of, degrees_of, without

FORMAT = Scheme(4, 32, False, integer_scales=True)


@pytest.fixture
def channels(model: ir.Model) -> Channels:
    return find_channels(model, NEURONS, PassReport())[0]


@pytest.fixture
def inputs() -> np.ndarray:
    """[3000, 96], columns mixed so that some make up for others."""
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((3000, 40)) @ rng.standard_normal((40, 96))
    return mixed + rng.standard_normal((3000, 96))


@pytest.mark.parametrize(
    ("shares", "multiple", "counts"),
    [
        ((0.7, 0.34), 32, [96, 64, 32]),
        ((0.5, 0.5, 0.01), 8, [96, 48, 8]),
        ((0.75,), 64, [96, 64]),
    ],
)
def test_counts_are_multiples(
    channels: Channels, shares: tuple[float, ...], multiple: int, counts: list[int]
) -> None:
    assert counts_of(channels, shares, multiple) == counts


def test_what_is_left_is_the_least_squares_fit(channels: Channels, inputs: np.ndarray) -> None:
    (linear,) = channels.linears
    weight = linear.weight.read_rows(0, 64).astype(np.float64)
    hessian = inputs.T @ inputs / len(inputs)
    degrees = degrees_of(channels, [96, 64, 32], hessian)
    assert degrees[0].error == pytest.approx(0, abs=1e-9)
    assert set(degrees[2].kept) < set(degrees[1].kept)
    for one in degrees[1:]:
        damping = 0.01 * hessian.diagonal().mean() * len(inputs)
        x = np.vstack([inputs, np.sqrt(damping) * np.eye(96)])
        best = np.linalg.lstsq(x[:, one.kept], x @ weight.T, rcond=None)[0].T
        found = without(channels, linear, one.kept, hessian, gptq=False).read_rows(0, 64)
        np.testing.assert_allclose(found[:, one.kept], best, rtol=1e-3, atol=1e-3)
        assert not np.delete(found, one.kept, axis=1).any()
        lost = inputs @ (weight - found).T
        assert one.error == pytest.approx(np.square(lost).sum() / len(inputs), rel=1e-4)


def test_fewer_neurons_go_worse_at_random(channels: Channels, inputs: np.ndarray) -> None:
    hessian = inputs.T @ inputs / len(inputs)
    (linear,) = channels.linears
    weight = linear.weight.read_rows(0, 64).astype(np.float64)
    chosen = degrees_of(channels, [96, 64], hessian)[1]
    for seed in range(5):
        kept = np.sort(np.random.default_rng(seed).permutation(96)[:64])
        lost = weight - without(channels, linear, kept, hessian, gptq=False).read_rows(0, 64)
        assert float(np.sum((lost @ hessian) * lost)) > chosen.error


@pytest.mark.parametrize("gptq", [False, True])
def test_what_is_left_is_rounded_in_groups_of_its_own(
    channels: Channels, inputs: np.ndarray, gptq: bool
) -> None:
    (linear,), hessian = channels.linears, inputs.T @ inputs / len(inputs)
    kept = degrees_of(channels, [96, 64], hessian)[1].kept
    fitted = without(channels, linear, kept, hessian, gptq=False).read_rows(0, 64)
    found = without(channels, linear, kept, hessian, FORMAT, gptq=gptq).read_rows(0, 64)
    groups = found[:, kept].reshape(64, 2, 32)
    assert max(len(np.unique(group)) for row in groups for group in row) <= 16
    assert not np.delete(found, kept, axis=1).any()
    error = np.square(found - fitted).sum() / np.square(fitted).sum()
    assert 0 < error < 0.03


def test_gptq_rounds_with_a_smaller_error_of_outputs(
    channels: Channels, inputs: np.ndarray
) -> None:
    (linear,), hessian = channels.linears, inputs.T @ inputs / len(inputs)
    kept = degrees_of(channels, [96, 64], hessian)[1].kept
    fitted = without(channels, linear, kept, hessian, gptq=False).read_rows(0, 64)

    def lost(gptq: bool) -> float:
        found = without(channels, linear, kept, hessian, FORMAT, gptq=gptq).read_rows(0, 64)
        return float(np.square(inputs @ (found - fitted).T).sum())

    assert lost(gptq=True) < 0.7 * lost(gptq=False)
