"""Magnitude and Wanda against their definitions in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.scores import by_magnitude, by_wanda
from tests.passes.prune.weights.problems import loss, weight


def inputs(columns: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(columns, 500)) * np.exp(draw.normal(size=(columns, 1)))


@pytest.mark.parametrize("share", [0.5, 0.6])
def test_wanda_compares_in_a_row_by_the_norm_of_the_input(share: float) -> None:
    x, w = inputs(96), weight(40, 96)
    mask = by_wanda(w, x @ x.T / x.shape[1], Amount(share))
    norms = np.linalg.norm(x, axis=1)
    for row, found in zip(w, mask, strict=True):
        order = np.argsort(np.abs(row) * norms)
        assert set(np.flatnonzero(~found)) == set(order[: round(share * 96)])


def test_wanda_with_a_pattern_compares_in_groups() -> None:
    x, w = inputs(96), weight(40, 96)
    hessian = x @ x.T / x.shape[1]
    mask = by_wanda(w, hessian, Amount(0.5, 2, 4))
    scores = (np.abs(w) * np.linalg.norm(x, axis=1)).reshape(40, 24, 4)
    order = np.argsort(scores, axis=2)[:, :, 2:]
    expected = np.zeros(scores.shape, bool)
    np.put_along_axis(expected, order, True, axis=2)
    np.testing.assert_array_equal(mask, expected.reshape(w.shape))
    plain = by_magnitude(w, Amount(0.5, 2, 4))
    assert loss(w * mask, w, hessian) < 0.8 * loss(w * plain, w, hessian)


def test_magnitudes_are_compared_in_the_whole_weight() -> None:
    w = weight(40, 96)
    mask = by_magnitude(w, Amount(0.7))
    least = np.sort(np.abs(w).ravel())[round(0.7 * w.size)]
    np.testing.assert_array_equal(mask, np.abs(w) >= least)
