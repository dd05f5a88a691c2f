"""Scales against the papers' formulas, written out channel by channel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optc.passes.quantize.smooth.scales import awq_scale, smoothquant_scale


def drawn(seed: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).standard_normal(40))


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_smoothquant(alpha: float) -> None:
    x, w = drawn(0), drawn(1)
    plain = [a**alpha / b ** (1 - alpha) for a, b in zip(x, w, strict=True)]
    mean = math.exp(sum(map(math.log, plain)) / len(plain))
    found = smoothquant_scale(x, w, alpha)
    np.testing.assert_allclose(found, [one / mean for one in plain], rtol=1e-12)
    assert np.prod(found) == pytest.approx(1)


def test_half_of_the_difficulty_makes_inputs_and_weights_alike() -> None:
    x, w = drawn(0), drawn(1)
    scale = smoothquant_scale(x, w, 0.5)
    ratio = (x / scale) / (w * scale)
    np.testing.assert_allclose(ratio, np.full(40, ratio[0]), rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.35, 1.0])
def test_awq(alpha: float) -> None:
    x = drawn(2)
    plain = [one**alpha for one in x]
    middle = math.sqrt(max(plain) * min(plain))
    np.testing.assert_allclose(awq_scale(x, alpha), [one / middle for one in plain], rtol=1e-12)


def test_channels_that_are_always_zero_are_left() -> None:
    x, w = drawn(0), drawn(1)
    x[3] = w[5] = 0
    smooth, awq = smoothquant_scale(x, w, 0.5), awq_scale(x, 0.5)
    assert smooth[3] == smooth[5] == awq[3] == 1
    live = [index for index in range(40) if index not in (3, 5)]
    np.testing.assert_allclose(smooth[live], smoothquant_scale(x[live], w[live], 0.5), rtol=1e-12)
    nothing = np.zeros(4)
    assert smoothquant_scale(nothing, nothing, 0.5).tolist() == [1, 1, 1, 1]
    assert awq_scale(nothing, 0.5).tolist() == [1, 1, 1, 1]
