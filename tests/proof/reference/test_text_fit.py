"""What a model explains of a text, against sums over all logits at once."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.running import head
from optc.proof.reference.text_fit import TextFit, text_fit, token_entropy, token_losses
from tests.support.dense_models import V, dense_model


def losses(reference: BlockwiseReference, ids: np.ndarray) -> np.ndarray:
    hidden = reference.run(ids[:, :-1])
    logits = np.concatenate([reference.logits(hidden, one) for one in reference.tiles()], axis=1)
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    return -np.log(shares[np.arange(len(shares)), ids[:, 1:].ravel()])


def test_losses_are_those_of_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, V, (3, 21), np.int32)
    reference = BlockwiseReference(dense_model(1), 1)
    expected = losses(reference, ids)
    monkeypatch.setattr(head, "VOCAB_TILE", 40)
    monkeypatch.setattr("optc.proof.reference.text_fit._ROWS", 7)
    assert len(list(reference.tiles())) == 3
    np.testing.assert_allclose(token_losses(reference, ids), expected, rtol=1e-5)


def test_entropy_is_that_of_the_frequencies_and_hardly_depends_on_the_length() -> None:
    assert token_entropy(np.repeat(np.arange(8), 1000).astype(np.int32)) == pytest.approx(
        np.log(8), abs=1e-3
    )
    drawn = np.random.default_rng(0).integers(0, 500, 100_000, np.int32)
    assert token_entropy(drawn[:2000]) == pytest.approx(np.log(500), abs=0.02)
    assert token_entropy(np.zeros(10, np.int32)) == 0.0


def test_a_text_is_scored_in_windows() -> None:
    stream = np.random.default_rng(1).integers(0, V, 500, np.int32)
    reference = BlockwiseReference(dense_model(1), 1)
    fit = text_fit(reference, stream, 4, 16)
    assert fit.tokens == 500
    assert fit.entropy == token_entropy(stream)
    assert fit.explained == 1 - fit.loss / fit.entropy
    assert fit.explained < 0.1  # nobody explains random tokens
    with pytest.raises(InputError, match="fewer than two tokens"):
        text_fit(reference, stream[:1], 4, 16)


def test_a_text_of_one_token_again_and_again_has_nothing_to_explain() -> None:
    assert TextFit(10, 1.0, 0.0).explained == 0.0
