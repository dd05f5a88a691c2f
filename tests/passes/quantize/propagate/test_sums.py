"""Sums are means over all tokens of products in float64."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - names bfloat16 to NumPy
import numpy as np
import pytest

from optc.passes.quantize.propagate.sums import drift_of, result_drift_of
from optc.proof.reference.streams import gram
from optc.proof.reference.streams.gram import hessian_of
from optc.proof.reference.streams.products import Float32Products
from optc.proof.reference.two_streams import Pair
from tests.passes.calibrating.test_targets import pairs


def flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1]).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tokens", [2048, 999])
def test_sums_are_means_over_all_tokens(
    tokens: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gram, "TOKENS", tokens)
    weight, inputs, residual = pairs()
    inputs = Pair(inputs.changed.astype(dtype), inputs.original.astype(dtype))
    x, y = flat(inputs.changed), flat(inputs.original)
    bias = np.arange(residual.changed.shape[-1], dtype=np.float32)
    gap = flat(residual.original) - flat(residual.changed) - x @ weight.T
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(hessian_of(inputs.changed), x.T @ x / len(x), **close)
    np.testing.assert_allclose(drift_of(inputs), (y - x).T @ x / len(x), **close)
    products = Float32Products()
    found = result_drift_of(inputs.changed, residual, weight, None, products)
    np.testing.assert_allclose(found, gap.T @ x / len(x), **close)
    found = result_drift_of(inputs.changed, residual, weight, bias, products)
    np.testing.assert_allclose(found, (gap - bias).T @ x / len(x), **close)


def test_no_tokens_are_an_error() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        hessian_of(np.zeros((0, 5, 8), np.float32))
