"""Sums of two values in int8 against float64."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - names bfloat16 to NumPy
import numpy as np
import pytest

from optc.proof.reference.streams import int8_sums
from optc.proof.reference.streams.choice import has_int8
from optc.proof.reference.streams.int8_sums import rounded_sum

pytestmark = pytest.mark.skipif(not has_int8(), reason="the CPU has no AVX512-VNNI")


def near_int8(values: np.ndarray) -> np.ndarray:
    """Values [T, K] rounded to 8 bits, a scale for each column, in float64."""
    flat = values.astype(np.float32)
    steps = np.maximum(np.abs(flat).max(axis=0) / np.float32(127), 1e-38)
    return np.rint(flat / steps).astype(np.float64) * steps


@pytest.mark.parametrize("shape", [(50, 3, 7), (1, 1, 1), (300, 40, 33), (5, 1, 3), (5, 3, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("room", [40, 1 << 19])
def test_a_sum_is_exact_but_for_the_rounding_of_columns(
    shape: tuple[int, int, int], dtype: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_sums, "_VALUES", room)
    rng = np.random.default_rng(0)
    tokens, n, k = shape
    left = rng.standard_normal((tokens, n)).astype(np.float32) * np.exp(rng.standard_normal(n))
    right = rng.standard_normal((tokens, k)).astype(dtype)
    left = left.astype(np.float32)
    found = rounded_sum(left, right)
    wanted = near_int8(left).T @ near_int8(right)
    assert (found.dtype, found.shape) == (np.float32, (n, k))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_the_share_that_rounding_moves_does_not_grow_when_differences_get_small() -> None:
    rng = np.random.default_rng(1)
    right = rng.standard_normal((4096, 24)).astype(np.float32)
    noise = rng.standard_normal((4096, 16)).astype(np.float32)
    left = (1e-4 * (noise + right[:, :16])).astype(np.float32)  # beside values of 1
    exact = left.astype(np.float64).T @ right
    assert np.linalg.norm(rounded_sum(left, right) - exact) < 0.01 * np.linalg.norm(exact)


def test_columns_of_zeros_give_zeros() -> None:
    left, right = np.zeros((9, 2), np.float32), np.zeros((9, 3), np.float32)
    left[:, 1], right[:, 1] = 1, 2
    np.testing.assert_allclose(rounded_sum(left, right), [[0, 0, 0], [0, 18, 0]], rtol=1e-6)
