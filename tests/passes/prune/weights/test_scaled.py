"""Scaled problems have a diagonal of ones, and are the same problems."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.prune.weights.scaled import scaled
from tests.passes.prune.weights.problems import correlated, damped, deficient, loss, weight


@pytest.mark.parametrize("hessian", [correlated(64), deficient(64, 20)])
def test_losses_are_those_of_the_damped_hessian(hessian: np.ndarray) -> None:
    w, other = weight(9, 64), weight(9, 64, seed=5)
    problem = scaled(w, hessian, "w")
    np.testing.assert_array_equal(problem.hessian.diagonal(), 1)
    theirs = problem.unscaled(problem.rows)
    np.testing.assert_allclose(theirs, w, rtol=1e-6)
    live = hessian.diagonal() > 0
    w, other = (np.where(live, one, np.float32(0)) for one in (w, other))
    mean = hessian.diagonal().mean()
    expected = loss(other, w, hessian + 0.01 * mean * np.eye(64))
    found = loss(other * problem.scales, w * problem.scales, problem.hessian.astype(np.float64))
    assert found == pytest.approx(expected, rel=1e-4)


def test_inputs_that_are_all_zero_have_a_problem() -> None:
    problem = scaled(weight(3, 8), np.zeros((8, 8)), "w")
    np.testing.assert_array_equal(problem.hessian, np.eye(8))
    assert damped(np.zeros((8, 8))).shape == (8, 8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_what_is_no_hessian_is_refused(bad: float) -> None:
    hessian = np.eye(4)
    hessian[1, 1] = bad
    with pytest.raises(InputError, match="layer: the statistics of its inputs hold"):
        scaled(weight(2, 4), hessian, "layer")
