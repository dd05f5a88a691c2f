"""Principal components of a residual stream, beside those of an SVD."""

from __future__ import annotations

import numpy as np

from optc.passes.prune.residual.moments import principal_components, stream_moments
from optc.passes.quantize.rotate.residual import find_residual
from tests.passes.prune.residual.tiny import TOKENS, D, components, tiny_model, whole


def test_moments_are_of_the_stream_before_every_norm() -> None:
    model = tiny_model(tied=False)
    found = stream_moments(model, TOKENS, find_residual(model))
    rows = np.concatenate([one.reshape(-1, D) for one in whole(TOKENS)])
    rows = rows / np.sqrt((rows * rows).mean(-1, keepdims=True))
    np.testing.assert_allclose(found, rows.T @ rows / len(rows), rtol=1e-4, atol=1e-5)


def test_components_come_by_what_they_hold_and_have_one_sign() -> None:
    model = tiny_model(tied=False)
    columns, held = principal_components(stream_moments(model, TOKENS, find_residual(model)))
    assert (np.diff(held) <= 0).all()
    np.testing.assert_allclose(columns.T @ columns, np.eye(D), atol=1e-12)
    np.testing.assert_allclose(np.abs(columns.T @ components(TOKENS)), np.eye(D), atol=2e-2)
    assert (columns[np.abs(columns).argmax(axis=0), np.arange(D)] > 0).all()
