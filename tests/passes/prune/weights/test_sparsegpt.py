"""SparseGPT against optimal brain surgery, which inverts what is left of the Hessian each time."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.scores import by_magnitude
from optc.passes.prune.weights.sparsegpt import by_sparsegpt
from tests.passes.prune.weights.problems import correlated, damped, deficient, loss, weight

HALF, PATTERN = Amount(0.5), Amount(0.5, 2, 4)


def by_definition(w: np.ndarray, hessian: np.ndarray, amount: Amount, block: int) -> np.ndarray:
    """In float64: of each block of columns the weights of least w² / G_jj go, G_jj of the inverse
    of the Hessian of the columns from j on; these columns make up for each."""
    h, w = damped(hessian), w.astype(np.float64)
    inverses = [np.linalg.inv(h[j:, j:]) for j in range(len(h))]
    gone = np.zeros(w.shape, bool)
    for j in range(len(h)):
        if j % block == 0:
            some = slice(j, j + block)
            scores = w[:, some] ** 2 / np.array([inverses[i][0, 0] for i in range(j, j + block)])
            if amount.of:
                order = np.argsort(scores, axis=1)[:, : amount.of - amount.kept]
                np.put_along_axis(gone[:, some], order, True, axis=1)
            else:
                least = np.sort(scores.ravel())[round(amount.share * scores.size) - 1]
                gone[:, some] = scores <= least
        error = np.where(gone[:, j], w[:, j], 0)
        w[:, j:] -= error[:, None] / inverses[j][0, 0] * inverses[j][0]
        w[gone[:, j], j] = 0
    return w


@pytest.mark.parametrize(
    ("amount", "block", "columns"), [(HALF, 128, 256), (PATTERN, 4, 128), (Amount(0.6), 128, 128)]
)
def test_it_is_optimal_brain_surgery_in_order(amount: Amount, block: int, columns: int) -> None:
    hessian, w = correlated(columns), weight(70, columns)
    found = by_sparsegpt(w, hessian, amount)
    expected = by_definition(w, hessian, amount, block)
    assert ((found == 0) == (expected == 0)).mean() > 0.98
    mine, theirs = loss(found, w, hessian), loss(expected, w, hessian)
    assert mine == pytest.approx(theirs, rel=0.05)
    assert mine < 0.7 * loss(w * by_magnitude(w, amount), w, hessian)


@pytest.mark.parametrize("columns", [100, 300])
def test_exactly_as_many_are_zero_in_each_block(columns: int) -> None:
    found = by_sparsegpt(weight(33, columns), correlated(columns), HALF)
    for start in range(0, columns, 128):
        block = found[:, start : start + 128]
        assert np.count_nonzero(block == 0) == round(block.size / 2)


def test_patterns_hold_for_ragged_rows_and_several_tiles() -> None:
    found = by_sparsegpt(weight(523, 72), correlated(72), Amount(0.5, 4, 8))
    assert (np.count_nonzero(found.reshape(-1, 8), axis=1) == 4).all()


def test_fewer_tokens_than_inputs() -> None:
    hessian, w = deficient(96, 20), weight(32, 96)
    found = by_sparsegpt(w, hessian, HALF)
    assert np.isfinite(found).all()
    assert loss(found, w, hessian) < 0.3 * loss(w * by_magnitude(w, HALF), w, hessian)


def test_statistics_that_are_no_squares_are_refused() -> None:
    hessian = correlated(32)
    hessian[3, 3] = np.nan
    with pytest.raises(InputError, match=r"layers\.3: the statistics of its inputs"):
        by_sparsegpt(weight(4, 32), hessian, HALF, "layers.3")
