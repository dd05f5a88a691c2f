"""Hadamard matrices of many orders: entries ±1, rows orthogonal."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.numerics.hadamard import hadamard, rotation

#: One for each construction, and widths that models have.
ORDERS = (1, 2, 4, 8, 12, 20, 24, 28, 36, 60, 64, 72, 128, 200, 384, 576, 640, 768, 896, 960)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_orthogonal(order: int) -> None:
    matrix = hadamard(order)
    assert matrix is not None
    assert matrix.shape == (order, order)
    assert set(np.unique(matrix)) <= {-1, 1}
    wide = matrix.astype(np.float64)
    np.testing.assert_array_equal(wide @ wide.T, order * np.eye(order))


@pytest.mark.parametrize("order", [1536, 2048, 3584])
def test_widths_of_larger_models_are_there(order: int) -> None:
    matrix = hadamard(order)
    assert matrix is not None
    rng = np.random.default_rng(0)
    vector = rng.integers(-8, 8, order).astype(np.float64)
    np.testing.assert_array_equal(matrix @ (matrix.T @ vector), order * vector)


@pytest.mark.parametrize("order", [0, 3, 6, 10, 50, 92])
def test_orders_without_a_construction(order: int) -> None:
    assert hadamard(order) is None
    assert rotation(order, 0) is None


def test_rotations_have_random_signs_and_spread_a_channel_evenly() -> None:
    turn, other = rotation(48, 0), rotation(48, 1)
    assert turn is not None
    assert other is not None
    np.testing.assert_allclose(turn @ turn.T, np.eye(48), atol=1e-6)
    np.testing.assert_allclose(np.abs(turn), 48**-0.5, rtol=1e-6)
    assert (turn != other).any()
    np.testing.assert_array_equal(turn, rotation(48, 0))
