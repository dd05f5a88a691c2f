"""Common continuations are those of two models that decode greedily on their own."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.gates.continuation import compare_continuations
from optc.proof.reference.blockwise import BlockwiseReference
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


def greedy(model, prompt: np.ndarray, count: int, disturb=lambda logits: logits) -> list[int]:
    tokens = prompt.tolist()
    for _ in range(count):
        logits = disturb(whole_logits(model, np.array([tokens], np.int32))[0, -1:])
        tokens.append(int(logits[0].argmax()))
    return tokens[len(prompt) :]


def common(first: list[int], second: list[int]) -> int:
    pairs = enumerate(zip(first, second, strict=True))
    return next((i for i, (one, other) in pairs if one != other), len(first))


def compared(model, engine: RecomputingEngine, windows: np.ndarray):
    reference = BlockwiseReference(model, 1)
    try:
        return compare_continuations(reference, engine, windows)
    finally:
        reference.close()


@pytest.mark.parametrize("strength", [0.0, 0.3, 5.0])
def test_it_ends_where_two_greedy_decodings_part(strength: float) -> None:
    model = dense_model(2)
    noise = strength * np.random.default_rng(1).standard_normal(V).astype(np.float32)
    windows = np.random.default_rng(7).integers(0, V, (10, 21), np.int32)
    engine = RecomputingEngine(model, disturb=lambda logits: logits + noise)
    found = compared(model, engine, windows)
    assert (found.prompt_tokens, found.tokens) == (10, 10)
    expected = []
    for ids in windows[:8]:
        ours = greedy(model, ids[:10], 10, lambda logits: logits + noise)
        expected.append(common(greedy(model, ids[:10], 10), ours))
    assert list(found.common) == expected
    assert found.mean == pytest.approx(np.mean(expected))
    assert strength or expected == [10] * 8
    assert strength < 1 or min(expected) < 10


def test_lengths_are_bounded_and_the_shortest_window_will_do() -> None:
    model = dense_model(1)
    engine = RecomputingEngine(model, max_context=128)
    long = compared(model, engine, np.zeros((1, 120), np.int32))
    assert (long.prompt_tokens, long.tokens, long.common) == (32, 32, (32,))
    short = compared(model, RecomputingEngine(model), np.zeros((3, 2), np.int32))
    assert (short.prompt_tokens, short.tokens, short.common) == (1, 1, (1, 1, 1))
