"""What stays is fitted as a solver of each row's equations fits it."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.prune.weights.least_squares import fit_on_mask
from tests.passes.prune.weights.problems import correlated, damped, weight


def unit(hessian: np.ndarray) -> np.ndarray:
    scales = np.sqrt(hessian.diagonal())
    return np.asarray(hessian / scales / scales[:, None])


def solved(w: np.ndarray, hessian: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Each row by itself, in float64."""
    found = np.zeros(w.shape)
    for row, kept in enumerate(mask):
        inside = np.flatnonzero(kept)
        right = hessian[inside] @ w[row].astype(np.float64)
        found[row, inside] = np.linalg.solve(hessian[np.ix_(inside, inside)], right)
    return found


@pytest.mark.parametrize(("rows", "columns"), [(1, 20), (37, 64), (300, 48)])
def test_every_row_is_solved(rows: int, columns: int) -> None:
    hessian, w = unit(damped(correlated(columns))), weight(rows, columns)
    mask = np.random.default_rng(0).random(w.shape) < 0.5
    mask[0] = False  # nothing to fit
    found = fit_on_mask(w, hessian.astype(np.float32), w * mask, mask)
    assert not found[~mask].any()
    np.testing.assert_allclose(found, solved(w, hessian, mask), atol=2e-3 * np.abs(w).max())


def test_a_weight_that_fits_already_stays() -> None:
    w = weight(5, 32)
    mask = np.ones(w.shape, bool)
    np.testing.assert_array_equal(fit_on_mask(w, np.eye(32, dtype=np.float32), w, mask), w)
