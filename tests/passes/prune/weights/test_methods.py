"""Methods by name, and the fit of what stays."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.prune.weights.admm import by_admm
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.methods import CHANGE, CHOOSE, Method, refitted, relative_loss
from optc.passes.prune.weights.scores import by_magnitude, by_wanda
from optc.passes.prune.weights.sparsegpt import by_sparsegpt
from tests.passes.prune.weights.problems import correlated, damped, loss, weight
from tests.passes.prune.weights.test_least_squares import solved

HALF = Amount(0.5)


def test_each_name_is_its_method() -> None:
    hessian, w = correlated(64), weight(20, 64)
    expected = {
        "magnitude": w * by_magnitude(w, HALF),
        "wanda": w * by_wanda(w, hessian, HALF),
        "sparsegpt": by_sparsegpt(w, hessian, HALF),
        "admm": by_admm(w, hessian, HALF),
    }
    assert set(expected) == {*CHOOSE, *CHANGE}
    for name, rows in expected.items():
        np.testing.assert_array_equal(Method(name)(w, hessian, HALF, "w"), rows)


@pytest.mark.parametrize("name", ["magnitude", "wanda", "sparsegpt"])
def test_a_fit_keeps_the_mask_and_loses_the_least(name: str) -> None:
    hessian, w = correlated(48), weight(20, 48)
    plain, fitted = (Method(name, refit)(w, hessian, HALF, "w") for refit in (False, True))
    np.testing.assert_array_equal(plain == 0, fitted == 0)
    h = damped(hessian)
    best = loss(solved(w, h, plain != 0), w, h)
    assert best < 0.99 * loss(plain, w, h)
    assert loss(fitted, w, h) == pytest.approx(best, rel=0.01)


def test_what_methods_need_and_can() -> None:
    assert [Method(one).reads_inputs for one in CHOOSE] == [False, True]
    assert Method("magnitude", refit=True).reads_inputs
    assert [Method(one).corrects for one in (*CHOOSE, *CHANGE)] == [False, False, True, True]
    assert Method("wanda", refit=True).corrects


def test_magnitudes_need_no_hessian() -> None:
    w = weight(20, 48)
    expected = w * by_magnitude(w, HALF)
    np.testing.assert_array_equal(Method("magnitude")(w, None, HALF, "w"), expected)


def test_a_fit_from_any_start_is_the_same() -> None:
    hessian, w = correlated(32), weight(8, 32)
    mask = by_wanda(w, hessian, HALF)
    first, second = (refitted(w, hessian, start, mask) for start in (w * mask, 0 * w))
    np.testing.assert_allclose(first, second, atol=1e-4 * np.abs(w).max())


def test_the_loss_is_a_share_of_the_results_squares() -> None:
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(16, 400)), weight(8, 16)
    pruned = w * by_magnitude(w, HALF)
    whole, lost = np.sum((w @ x) ** 2), np.sum(((pruned - w) @ x) ** 2)
    assert relative_loss(pruned, w, x @ x.T / 400) == pytest.approx(lost / whole, rel=1e-4)
    assert relative_loss(0 * w, 0 * w, np.eye(16)) == 0.0
