"""Sums of x xᵀ against float64, and symmetric to the bit."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - names bfloat16 to NumPy
import numpy as np
import pytest

from optc.proof.reference.streams import gram as module
from optc.proof.reference.streams.gram import add_gram, mirror


@pytest.mark.parametrize("width", [1, 16, 33, 50])
def test_chunks_add_up_to_the_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    x = np.random.default_rng(0).standard_normal((90, width)).astype(np.float32)
    total = np.zeros((width, width))
    for rows in (x[:64], x[64:]):
        add_gram(total, rows)
    mirror(total)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(total, exact.T @ exact, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(total, total.T)


def test_sums_of_values_in_bfloat16_have_no_negative_eigenvalue() -> None:
    """The products are exact: a common part of all inputs does not drown the others."""
    rng = np.random.default_rng(1)
    x = (5 + 0.1 * rng.standard_normal((4096, 64))).astype("bfloat16").astype(np.float32)
    total = np.zeros((64, 64))
    add_gram(total, x)
    mirror(total)
    least = float(np.linalg.eigvalsh(total / len(x))[0])
    assert 0.005 < least < 0.02
