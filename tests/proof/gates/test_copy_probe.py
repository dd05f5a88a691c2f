"""What second copies of a text lose, against the whole logits of both models."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.gates.copy_probe import CopyProbe, copy_probe, probes
from optc.proof.reference.blockwise import BlockwiseReference
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


def probed(model, engine: RecomputingEngine, windows: np.ndarray) -> CopyProbe | None:
    reference = BlockwiseReference(model, 1)
    try:
        return copy_probe(reference, engine, windows)
    finally:
        reference.close()


def nll(logits: np.ndarray, tokens: np.ndarray) -> float:
    exact = logits.astype(np.float64)
    right = np.take_along_axis(exact, tokens[..., None], axis=-1)[..., 0]
    return float((np.log(np.exp(exact).sum(axis=-1)) - right).mean())


def test_a_probe_is_a_text_some_tokens_and_the_text_again() -> None:
    windows = np.arange(30 * 512, dtype=np.int32).reshape(30, 512)
    texts, copied = probes(windows)
    assert (texts.shape, copied) == ((8, 512), 220)
    assert (texts[0, 0], texts[-1, 0]) == (0, 29 * 512)
    for text in texts:
        assert (np.diff(text[:292]) == 1).all()
        np.testing.assert_array_equal(text[292:], text[:220])


@pytest.mark.parametrize("chunk", [3, 64])
def test_it_scores_all_but_the_first_token_of_second_copies(chunk: int) -> None:
    model = dense_model(2)
    noise = np.random.default_rng(1).standard_normal(V).astype(np.float32)
    windows = np.random.default_rng(7).integers(0, V, (3, 21), np.int32)
    engine = RecomputingEngine(model, disturb=lambda logits: logits + noise, max_rows=chunk)
    found = probed(model, engine, windows)
    assert found is not None
    assert (found.copied_tokens, found.distance_tokens, found.tokens) == (9, 12, 3 * 8)
    texts, _ = probes(windows)
    logits = whole_logits(model, texts[:, :-1])[:, 12:]
    assert found.nll_reference == pytest.approx(nll(logits, texts[:, 13:]), rel=1e-6)
    assert found.nll_engine == pytest.approx(nll(logits + noise, texts[:, 13:]), rel=1e-6)
    assert found.added == pytest.approx(found.nll_engine - found.nll_reference)
    assert abs(found.added) > 0.01


def test_texts_too_short_for_a_copy_have_no_figure() -> None:
    model = dense_model(1)
    assert probed(model, RecomputingEngine(model), np.zeros((3, 4), np.int32)) is None
