"""ADMM against the same iteration in float64, and against the best of all masks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from optc.passes.prune.weights import admm
from optc.passes.prune.weights.admm import by_admm
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.scores import by_wanda
from optc.passes.prune.weights.sparsegpt import by_sparsegpt
from tests.passes.prune.weights.problems import correlated, damped, deficient, loss, weight
from tests.passes.prune.weights.test_least_squares import solved

HALF, PATTERN = Amount(0.5), Amount(0.5, 2, 4)


def keep(scores: np.ndarray, amount: Amount) -> np.ndarray:
    groups = scores.reshape(-1, amount.of) if amount.of else scores.reshape(1, -1)
    gone = amount.of - amount.kept if amount.of else round(amount.share * scores.size)
    mask = np.ones(groups.shape, bool)
    np.put_along_axis(mask, np.argsort(groups, axis=1)[:, :gone], False, axis=1)
    return mask.reshape(scores.shape)


def alps(w: np.ndarray, hessian: np.ndarray, amount: Amount) -> np.ndarray:
    """ALPS (arXiv:2406.07831) with explicit inverses; what is left by a solver, row by row."""
    h = damped(hessian)
    s = np.sqrt(h.diagonal())
    g, target = h / s / s[:, None], w * s
    rho, d, v = 0.1, target * keep(np.abs(target), amount), np.zeros(w.shape)
    mask, changed = d != 0, 0
    for step in range(1, 301):
        x = (target @ g - v + rho * d) @ np.linalg.inv(g + rho * np.eye(len(g)))
        new = keep(np.abs(x + v / rho), amount)
        changed += int((new != mask).sum())
        mask, d = new, (x + v / rho) * new
        v += rho * (x - d)
        if step % 3 == 0:
            if changed == 0:
                break
            share = changed / mask.size
            rho *= 1.3 if share >= 1e-3 else 1.2 if share >= 1e-4 else 1.1
            changed = 0
    return solved(target, g, mask) / s


@pytest.mark.parametrize("amount", [HALF, PATTERN, Amount(0.7)])
def test_it_is_alps(amount: Amount) -> None:
    hessian, w = correlated(64), weight(30, 64)
    found, expected = by_admm(w, hessian, amount), alps(w, hessian, amount)
    assert ((found == 0) == (expected == 0)).mean() > 0.97
    assert loss(found, w, hessian) == pytest.approx(loss(expected, w, hessian), rel=0.02)


@pytest.mark.parametrize("amount", [HALF, PATTERN])
def test_it_loses_less_than_the_others(amount: Amount) -> None:
    hessian, w = correlated(128), weight(64, 128)
    admm, sparse = by_admm(w, hessian, amount), by_sparsegpt(w, hessian, amount)
    wanda = w * by_wanda(w, hessian, amount)
    assert loss(admm, w, hessian) < 0.9 * loss(sparse, w, hessian)
    assert loss(sparse, w, hessian) < 0.8 * loss(wanda, w, hessian)


def test_it_is_near_the_best_of_all_masks() -> None:
    hessian, w = correlated(10), weight(1, 10)
    h = damped(hessian)
    best = np.inf
    for inside in combinations(range(10), 5):
        mask = np.isin(np.arange(10), inside)[None]
        best = min(best, loss(solved(w, h, mask), w, h))
    assert loss(by_admm(w, hessian, HALF), w, h) < 1.3 * best


def test_a_mask_that_never_changes_ends_the_search_at_its_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights that are zero where they should be, of inputs that have nothing in common."""
    steps, usual = list[int](), admm._Search._step

    def counted(search: admm._Search) -> int:
        steps.append(usual(search))
        return steps[-1]

    monkeypatch.setattr(admm._Search, "_step", counted)
    w = weight(4, 8) * np.tile([1, 0, 0, 1], 2).astype(np.float32)
    np.testing.assert_allclose(by_admm(w, np.eye(8), PATTERN), w, rtol=1e-5)
    assert steps == [0, 0, 0]


def test_as_many_are_zero_as_should_be() -> None:
    w, hessian = weight(301, 40), correlated(40)
    assert np.count_nonzero(by_admm(w, hessian, Amount(0.6)) == 0) == round(0.6 * w.size)
    pattern = by_admm(w, hessian, Amount(0.5, 4, 8))
    assert (np.count_nonzero(pattern.reshape(-1, 8), axis=1) == 4).all()


def test_fewer_tokens_than_inputs() -> None:
    hessian, w = deficient(96, 20), weight(32, 96)
    found = by_admm(w, hessian, HALF)
    assert np.isfinite(found).all()
    assert loss(found, w, hessian) < loss(by_sparsegpt(w, hessian, HALF), w, hessian)
