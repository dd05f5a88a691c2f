"""The order of the optimal brain surgeon and the fit of what is left, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.prune.structured import obs
from optc.passes.prune.structured.obs import damped, least_important, refitted


def problem(rows: int, columns: int, tokens: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A weight, and inputs whose channels depend on each other."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((columns, columns)) * rng.exponential(1, columns)
    return rng.standard_normal((rows, columns)), rng.standard_normal((tokens, columns)) @ mix


def loss_without(weight: np.ndarray, x: np.ndarray, gone: list[int]) -> float:
    """The least squared error without columns, by a solver that knows nothing of Hessians."""
    kept = np.setdiff1d(np.arange(x.shape[1]), gone)
    wanted = x @ weight.T
    found = np.linalg.lstsq(x[:, kept], wanted, rcond=None)[0]
    return float(np.square(wanted - x[:, kept] @ found).sum())


def test_each_step_takes_the_column_whose_loss_the_others_make_up_best() -> None:
    weight, x = problem(9, 14, 200)
    hessian = x.T @ x / len(x)
    taken: list[int] = []
    for count in range(1, 8):
        losses = {j: loss_without(weight, x, [*taken, j]) for j in range(14) if j not in taken}
        taken.append(min(losses, key=lambda j: losses[j]))
        assert least_important(weight, hessian, count).tolist() == sorted(taken)


def test_what_is_left_is_the_least_squares_solution() -> None:
    weight, x = problem(9, 14, 200, seed=1)
    kept = np.array([0, 2, 3, 7, 8, 13])
    found = refitted(weight, x.T @ x / len(x), kept)
    wanted = np.linalg.lstsq(x[:, kept], x @ weight.T, rcond=None)[0].T
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)


def test_nothing_is_fitted_where_all_stays_or_all_goes() -> None:
    weight, x = problem(3, 5, 20)
    hessian = x.T @ x
    np.testing.assert_array_equal(refitted(weight, hessian, np.arange(5)), weight)
    assert refitted(weight, hessian, np.arange(0)).shape == (3, 0)


def test_of_many_columns_several_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obs, "_ROUNDS", 5)
    weight, x = problem(9, 14, 200)
    hessian = x.T @ x / len(x)
    inverse = np.linalg.inv(hessian)
    scores = np.square(weight).sum(axis=0) / inverse.diagonal()
    assert least_important(weight, hessian, 3).tolist() == sorted(np.argsort(scores)[:3])
    assert len(least_important(weight, hessian, 7)) == 7


def test_few_tokens_and_dead_inputs_are_damped() -> None:
    weight, x = problem(3, 12, 5)
    x[:, 4] = 0
    hessian = x.T @ x / len(x)
    whole = damped(hessian, "w")
    mean = (hessian.diagonal().sum() + 1) / 12
    np.testing.assert_allclose(np.diag(whole)[4], 1 + 0.01 * mean)
    np.testing.assert_allclose(np.diag(whole)[5], hessian[5, 5] + 0.01 * mean)
    assert np.linalg.eigvalsh(whole).min() > 0
    assert least_important(np.where(np.arange(12) == 4, 0, weight), whole, 1).tolist() == [4]
    kept = np.setdiff1d(np.arange(12), [4])
    np.testing.assert_allclose(refitted(weight, whole, kept), weight[:, kept])
    np.testing.assert_array_equal(hessian, x.T @ x / len(x))


def test_statistics_that_are_no_squares_are_refused() -> None:
    with pytest.raises(InputError, match="no squares"):
        damped(np.diag([1.0, -1e12, 1.0]), "w")
