"""The filters against plain ones that take one token after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.executable.executable import Float32
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.filters import kept_tokens, nearest
from optc.runtime.sampling.sampler_math import distances


def first(order: list[int], probability: dict[int, float], share: float) -> list[int]:
    """Tokens of ``order`` while those before them do not hold the share."""
    whole, kept, reached = sum(probability[token] for token in order), [], 0.0
    for token in order:
        if kept and reached >= share * whole * (1 - 1e-12):
            break
        kept.append(token)
        reached += probability[token]
    return kept


def kept_naively(logits: Float32, params: SamplingParams) -> list[int]:
    """Tokens that stay, one filter after the other."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    top = max(logits)
    odds = {t: math.exp((float(logits[t]) - float(top)) / params.temperature) for t in order}
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        order = first(order, odds, params.top_p)
    order = [token for token in order if odds[token] >= params.min_p]
    if params.typical_p < 1:
        whole = sum(odds[token] for token in order)
        surprise = {t: -math.log(odds[t] / whole) for t in order if odds[t]}
        entropy = sum(odds[t] / whole * surprise[t] for t in surprise)
        order = sorted(surprise, key=lambda t: (round(abs(surprise[t] - entropy), 9), t))
        order = first(order, odds, params.typical_p)
    return sorted(order)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    params=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.3, 1.0, 2.5]),
        top_k=st.sampled_from([0, 1, 2, 7, 60, 1000]),
        top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
        min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
        typical_p=st.sampled_from([0.03, 0.4, 0.95, 1.0, 1.0]),
    ),
    seed=st.integers(0, 1000),
    distinct=st.sampled_from([3, 1000]),
    vocab=st.sampled_from([5, 60, 601]),
)
def test_filters_equal_the_plain_ones(
    params: SamplingParams, seed: int, distinct: int, vocab: int
) -> None:
    """Ties (3 distinct logits) included."""
    rng = np.random.default_rng(seed)
    logits = (rng.integers(0, distinct, vocab) / distinct * 6).astype(np.float32)
    kept = kept_tokens(distances(logits, params.temperature), params)
    assert (list(range(vocab)) if kept is None else kept.tolist()) == kept_naively(logits, params)


@pytest.mark.parametrize("typical_p", [0.1, 0.3, 0.6, 0.9])
def test_typical_tokens_of_a_known_distribution(typical_p: float) -> None:
    """Entropy 1.33 nats: the surprises 0.69, 1.61, 1.90, 2.30 lie 0.64, 0.28, 0.56, 0.97 off."""
    logits = np.log(np.array([0.5, 0.2, 0.15, 0.1, 0.05], np.float32))
    kept = kept_tokens(distances(logits, 1.0), SamplingParams(typical_p=typical_p))
    assert kept is not None
    expected = {0.1: [1], 0.3: [1, 2], 0.6: [0, 1, 2], 0.9: [0, 1, 2, 3]}[typical_p]
    assert kept.tolist() == expected


@pytest.mark.parametrize("share", ["top_p", "typical_p"])
def test_impossible_tokens_go_and_one_token_stays(share: str) -> None:
    logits = np.array([-np.inf, 1.0, 1.0, -np.inf], np.float32)
    for value, expected in ((1e-300, [1]), (0.4, [1]), (0.9, [1, 2])):
        kept = kept_tokens(distances(logits, 1.0), SamplingParams(**{share: value}))
        assert kept is not None
        assert kept.tolist() == expected


@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_likeliest_come_in_order_with_lower_ids_first(count: int) -> None:
    logits = np.array([0.0, 3.0, -0.0, 3.0, -np.inf, -2.0], np.float32)
    assert nearest(distances(logits, 1.0), count).tolist() == [1, 3, 0, 2, 5, 4][:count]


@settings(deadline=None, derandomize=True)
@given(
    vocab=st.integers(1, 400),
    count=st.integers(1, 60),
    distinct=st.integers(1, 500),
    seed=st.integers(0, 100),
)
def test_the_likeliest_of_any_row(vocab: int, count: int, distinct: int, seed: int) -> None:
    logits = np.random.default_rng(seed).integers(0, distinct, vocab).astype(np.float32)
    expected = sorted(range(vocab), key=lambda token: (-logits[token], token))
    got = nearest(distances(logits, 1.0), min(count, vocab)).tolist()
    assert got == expected[: min(count, vocab)]
