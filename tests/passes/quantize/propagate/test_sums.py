"""Sums are means over all tokens of products in float64."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.quantize.propagate import sums as module
from optc.passes.quantize.propagate.sums import (
    drift_of,
    hessian_of,
    residual_drift_of,
    result_drift_of,
)
from optc.reference.two_streams import Pair
from tests.passes.quantize.propagate.test_targets import pairs


def flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1]).astype(np.float64)


@pytest.mark.parametrize("rows", [2048, 999])
def test_sums_are_means_over_all_tokens(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    weight, inputs, residual = pairs()
    x, y = flat(inputs.changed), flat(inputs.original)
    gap = flat(residual.original) - flat(residual.changed)
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(hessian_of(inputs), x.T @ x / len(x), **close)
    drift = (y - x).T @ x / len(x)
    np.testing.assert_allclose(drift_of(inputs), drift, **close)
    np.testing.assert_allclose(residual_drift_of(inputs, residual), gap.T @ x / len(x), **close)
    both = weight.astype(np.float64) @ drift
    np.testing.assert_allclose(result_drift_of(weight, inputs, None), both, **close)
    both += gap.T @ x / len(x)
    np.testing.assert_allclose(result_drift_of(weight, inputs, residual), both, **close)


def test_no_tokens_are_an_error() -> None:
    nothing = np.zeros((0, 5, 8), np.float32)
    with pytest.raises(ValueError, match="no tokens"):
        hessian_of(Pair(nothing, nothing))
