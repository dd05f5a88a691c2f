"""Factors in place, against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.numerics.gptq import triangular
from optc.passes.numerics.gptq.triangular import (
    cholesky_in_place,
    invert_lower_in_place,
    mirror_upper,
    solve_in_place,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangular, "_BLOCK", 16)
    monkeypatch.setattr(triangular, "_ROWS", 24)


def positive(size: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((3 * size, size))
    return x.T @ x / len(x)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 48, 61])
def test_factor_inverse_and_solution_are_numpys(size: int) -> None:
    matrix = positive(size)
    work = matrix.copy()
    cholesky_in_place(work)
    np.testing.assert_allclose(np.tril(work), np.linalg.cholesky(matrix), atol=1e-12)
    np.testing.assert_array_equal(np.triu(work, 1), np.triu(matrix, 1))
    invert_lower_in_place(work)
    np.testing.assert_allclose(work, np.linalg.inv(np.linalg.cholesky(matrix)), atol=1e-10)
    rows = np.random.default_rng(1).standard_normal((50, size))
    expected = np.linalg.solve(matrix, rows.T).T
    solve_in_place(rows, work)
    np.testing.assert_allclose(rows, expected, atol=1e-8)


@pytest.mark.parametrize("bad", [0, 20, 40])
def test_a_matrix_that_is_not_positive_definite_can_be_restored(bad: int) -> None:
    matrix = positive(41)
    matrix[bad, bad] = -1.0
    work = matrix.copy()
    with pytest.raises(np.linalg.LinAlgError):
        cholesky_in_place(work)
    np.fill_diagonal(work, matrix.diagonal())
    mirror_upper(work)
    np.testing.assert_array_equal(work, matrix)


def test_it_works_in_a_view_in_reverse() -> None:
    matrix = positive(33)
    work = matrix.copy()
    cholesky_in_place(work[::-1, ::-1])
    expected = np.linalg.cholesky(matrix[::-1, ::-1])
    np.testing.assert_allclose(np.tril(work[::-1, ::-1]), expected, atol=1e-12)
