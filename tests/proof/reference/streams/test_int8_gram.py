"""E[x xᵀ] in int8 against float64: what is rounded, what is not, and what stays definite."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - names bfloat16 to NumPy
import numpy as np
import pytest

from optc.proof.reference.streams import int8_gram as module
from optc.proof.reference.streams.choice import has_int8
from optc.proof.reference.streams.int8_gram import rounded_hessian

pytestmark = pytest.mark.skipif(not has_int8(), reason="the CPU has no AVX512-VNNI")


def exact(x: np.ndarray) -> np.ndarray:
    flat = x.reshape(-1, x.shape[-1]).astype(np.float64)
    return flat.T @ flat / len(flat)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("tokens", "width"), [(90, 1), (700, 33), (129, 50), (64, 16)])
def test_it_is_near_the_moment_of_the_values(
    tokens: int, width: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "TOKENS", 128)
    monkeypatch.setattr(module, "_MOST_TOKENS", 256)
    x = np.random.default_rng(0).standard_normal((tokens, width)).astype(dtype)
    found, wanted = rounded_hessian(x), exact(x)
    np.testing.assert_array_equal(found, found.T)
    size = np.sqrt(np.outer(wanted.diagonal(), wanted.diagonal()))
    assert np.abs(found - wanted).max() / size.max() < 0.01
    assert np.linalg.eigvalsh(found)[0] > -1e-9


def test_it_is_the_moment_of_values_rounded_by_columns() -> None:
    x = np.random.default_rng(1).standard_normal((4, 50, 24)).astype(np.float32)
    x *= np.logspace(-3, 3, 24, dtype=np.float32)
    scales = np.abs(x).max(axis=(0, 1)) / np.float32(127)
    found, wanted = rounded_hessian(x), exact(np.rint(x / scales) * scales)
    sizes = np.sqrt(wanted.diagonal())
    np.testing.assert_allclose(
        found / sizes / sizes[:, None], wanted / sizes / sizes[:, None], atol=1e-5
    )


def test_a_token_with_a_huge_value_is_not_rounded_and_leaves_the_others_their_bits() -> None:
    x = np.random.default_rng(2).standard_normal((4096, 32)).astype(np.float32)
    x[:, 5] = x[:, 4]
    x[17, 5] = 3000  # 2,000 times the mean magnitude, and 64 times the root mean square
    found, wanted = rounded_hessian(x), exact(x)
    np.testing.assert_allclose(found[5, 5], wanted[5, 5], rtol=1e-3)
    others = np.arange(32) != 5
    np.testing.assert_allclose(found[5, others], wanted[5, others], atol=0.1)
    np.testing.assert_allclose(found[others][:, others], wanted[others][:, others], atol=0.004)


def test_inputs_that_are_always_zero_stay_zero() -> None:
    x = np.random.default_rng(3).standard_normal((70, 8)).astype(np.float32)
    x[:, 3] = 0
    found = rounded_hessian(x)
    assert not found[3].any()
    assert np.isfinite(found).all()


def test_no_tokens_are_an_error() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        rounded_hessian(np.zeros((0, 5, 8), np.float32))
