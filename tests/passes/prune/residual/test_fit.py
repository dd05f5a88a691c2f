"""Layers of a narrower stream, fitted: beside least squares in NumPy."""

from __future__ import annotations

import numpy as np

from optc.passes.prune.residual.fit import StreamStages
from optc.passes.prune.residual.narrow import turn_stream
from optc.passes.prune.structured.decisions import Ledger
from optc.passes.prune.structured.refit import Cut
from optc.passes.quantize.rotate.residual import find_residual
from optc.pipeline.base import PassReport
from optc.reference.calibration import CalibrationStore
from optc.reference.streams.choice import run_products
from optc.reference.streams.products import FLOAT32
from optc.reference.two_streams import run_two_streams
from tests.passes.prune.residual.tiny import (
    ARRAYS,
    TOKENS,
    D,
    components,
    normed,
    tiny_model,
    whole,
)

SIZE = 8


def stages(columns: np.ndarray, tokens: int) -> tuple[StreamStages, CalibrationStore]:
    """What a run over the text leaves."""
    model, store = tiny_model(tied=False), CalibrationStore()
    residual = find_residual(model)
    turn_stream(residual, columns)
    values = model.graph.initializers
    cuts = {values["up"]: Cut(D, SIZE, np.arange(SIZE))}
    found = StreamStages(
        cuts,
        Ledger(store, "p"),
        PassReport(),
        tokens,
        width=SIZE,
        writers=frozenset([values["down"]]),
    )
    products = run_products((FLOAT32, FLOAT32), 1)
    run_two_streams(model, TOKENS, found, products, 1, start=found.start)
    return found, store


def fitted(weight: np.ndarray, x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """W [K, N] and what it lacks, by ridge regression on rows x."""
    gram = x.T @ x / len(x)
    inputs = D if len(gram) == SIZE else len(gram)  # channels that are gone count as zeros
    mean = np.trace(gram) / inputs
    lacks = x.T @ (wanted - x @ weight) / len(x)
    return weight + np.linalg.solve(gram + 0.01 * mean * np.eye(len(gram)), lacks)


def test_readers_writers_and_the_end_are_fitted_in_turn() -> None:
    columns = components(TOKENS)
    found, store = stages(columns, TOKENS.size)
    kept = columns[:, :SIZE]
    first, second = (one.reshape(-1, D) for one in whole(TOKENS))
    up = ARRAYS["gamma"][:, None] * ARRAYS["up"].astype(np.float64)
    x = first @ kept
    wanted = fitted(kept.T @ up, normed(x), normed(first) @ up)
    got = store.find("up", "p: weight")
    assert got is not None
    np.testing.assert_allclose(got, wanted.T, rtol=2e-3, atol=2e-3)
    z = 1 / (1 + np.exp(-normed(x) @ wanted))
    down = fitted(ARRAYS["down"] @ kept, z, second @ kept - x)
    got = store.find("down", "p: weight")
    assert got is not None
    assert got.shape == (SIZE, 16)
    np.testing.assert_allclose(got, down.T, rtol=2e-3, atol=2e-3)
    x = x + z @ down
    last = fitted(np.eye(D)[:SIZE], normed(x), normed(second) @ columns)
    np.testing.assert_allclose(found.last, last.T, rtol=2e-3, atol=2e-3)
    assert len(found.lost) == 1


def test_a_text_that_is_too_short_fits_nothing() -> None:
    found, store = stages(components(TOKENS), 20)
    np.testing.assert_array_equal(found.last, np.eye(D)[:, :SIZE])
    got = store.find("down", "p: weight")
    assert got is not None
    wanted = components(TOKENS)[:, :SIZE].T @ ARRAYS["down"].T
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
