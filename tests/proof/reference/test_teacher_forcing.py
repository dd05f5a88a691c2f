"""Driving an engine over given tokens."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


def test_a_window_is_fed_in_chunks_the_engine_takes() -> None:
    model = dense_model(1)
    engine = RecomputingEngine(model, max_rows=7, max_logit_rows=5)
    tokens = np.random.default_rng(0).integers(0, V, 13, np.int32)
    sequence = SingleSequence(engine, 13)
    for _ in range(2):  # a window starts anew
        parts = [(start, logits.copy()) for start, logits in window_logits(sequence, tokens)]
        assert [start for start, _ in parts] == [0, 5, 10]
        found = np.concatenate([logits for _, logits in parts])
        np.testing.assert_allclose(found, whole_logits(model, tokens[None])[0], atol=2e-5)


def test_prefill_then_decode() -> None:
    model = dense_model(1)
    engine = RecomputingEngine(model, max_rows=7)
    tokens = np.random.default_rng(0).integers(0, V, 10, np.int32)
    expected = whole_logits(model, tokens[None])[0]
    sequence = SingleSequence(engine, 10)
    np.testing.assert_allclose(sequence.prefill(tokens[:9])[0], expected[8], atol=2e-5)
    last = sequence.feed(tokens[9:], np.zeros(1, np.int32))
    np.testing.assert_allclose(last[0], expected[9], atol=2e-5)
    assert engine.steps == [7, 2, 1]
    assert sequence.length == 10


def test_a_sequence_longer_than_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="65 tokens exceed the engine's context of 64"):
        SingleSequence(RecomputingEngine(dense_model(1)), 65)
