"""The factor of a Hessian: order, damping, and what cannot be factorized."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.numerics.gptq import factor as module
from optc.passes.numerics.gptq.factor import DAMPING, column_order, factor_of, reordered
from tests.passes.numerics.gptq.test_rows import correlated


def test_columns_come_by_size_and_groups_stay_whole() -> None:
    diagonal = np.array([1.0, 3.0, 2.0, 5.0, 9.0, 0.0, 2.0, 2.0])
    assert column_order(diagonal, 0).tolist() == [4, 3, 1, 2, 6, 7, 0, 5]
    # means of pairs: 2, 3.5, 4.5, 2; equals in their order
    assert column_order(diagonal, 2).tolist() == [4, 5, 3, 2, 1, 0, 6, 7]


def test_shares_are_those_of_the_inverse() -> None:
    hessian = correlated(32)
    factor = factor_of(hessian, 8)
    ordered = hessian[np.ix_(factor.order, factor.order)]
    ordered[np.diag_indices(32)] += DAMPING * hessian.diagonal().mean()
    for i in range(32):
        inverse = np.linalg.inv(ordered[i:, i:])
        expected = inverse[0] / inverse[0, 0]
        np.testing.assert_allclose(factor.shares[i, i:], expected, rtol=1e-5, atol=1e-6)
        assert not factor.shares[i, :i].any()
    np.testing.assert_allclose(factor.weights**2, hessian.diagonal()[factor.order], rtol=1e-6)
    assert factor.damping == DAMPING


def test_more_damping_is_tried_where_a_little_does_not_do() -> None:
    hessian = np.eye(16)
    hessian[0, 1] = hessian[1, 0] = 1.05  # eigenvalue -0.05
    factor = factor_of(hessian, 0)
    assert factor.damping == pytest.approx(10 * DAMPING)
    assert np.isfinite(factor.shares).all()


def test_inputs_that_are_always_zero_get_and_give_nothing() -> None:
    hessian = correlated(16)
    hessian[5] = hessian[:, 5] = 0.0
    factor = factor_of(hessian, 0)
    assert factor.order[-1] == 5
    np.testing.assert_array_equal(factor.shares[:, -1], np.eye(16, dtype=np.float32)[-1])
    assert factor.weights[-1] == 1
    assert factor_of(np.zeros((4, 4)), 0).shares.tolist() == np.eye(4).tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_statistics_that_are_none_are_refused(value: float) -> None:
    hessian = correlated(8)
    hessian[3, 3] = value
    with pytest.raises(InputError, match=r"q_proj: the statistics .*calibrate with another text"):
        factor_of(hessian, 0, "q_proj")


def test_what_no_damping_mends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRIES", 1)
    hessian = np.eye(4)
    hessian[0, 1] = hessian[1, 0] = 9.0
    with pytest.raises(InputError, match=r"q_proj: .* are no squares \(calibrate again\)"):
        factor_of(hessian, 0, "q_proj")


def test_unsorted_columns_stay_and_pivots_are_what_errors_cost() -> None:
    hessian = correlated(24)
    factor = factor_of(hessian, 0, sort=False)
    assert factor.order.tolist() == list(range(24))
    h = hessian + DAMPING * hessian.diagonal().mean() * np.eye(24)
    for i in range(24):
        left = np.linalg.inv(h[i:, i:])[0, 0]  # least loss of an error e: e² / left
        assert factor.pivots[i] ** 2 == pytest.approx(left, rel=1e-5)


def test_it_may_be_computed_in_the_hessians_own_memory() -> None:
    hessian = correlated(150)
    expected, given = factor_of(hessian, 50), hessian.copy()
    found = factor_of(given, 50, consume=True)
    for name in ("order", "shares", "weights", "pivots"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.damping == expected.damping
    assert not np.array_equal(given, hessian)
    np.testing.assert_array_equal(hessian, correlated(150), "else it stays")


@pytest.mark.parametrize("size", [1, 2, 7, 64, 65, 200])
def test_rows_and_columns_change_places_in_place(size: int) -> None:
    rng = np.random.default_rng(size)
    for order in (rng.permutation(size), np.arange(size), np.arange(size)[::-1]):
        matrix = rng.normal(size=(size, size))
        expected = matrix[np.ix_(order, order)]
        assert reordered(matrix, order) is matrix
        np.testing.assert_array_equal(matrix, expected)
