"""The filters against plain ones that take one token after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime import filters
from optc.runtime.executable import Float32
from optc.runtime.filters import kept_tokens, likeliest
from optc.runtime.params import SamplingParams


def kept_naively(logits: Float32, params: SamplingParams) -> list[int]:
    """Tokens that stay, one filter after the other."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if params.top_k:
        order = order[: params.top_k]
    scores = {token: float(logits[token]) / params.temperature for token in order}
    masses = {token: float(np.exp(scores[token] - scores[order[0]])) for token in order}
    whole = sum(masses.values())
    kept: list[int] = []
    reached = 0.0
    for token in order:
        if kept and (reached >= params.top_p * whole or masses[token] < params.min_p):
            break
        kept.append(token)
        reached += masses[token]
    return kept


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    params=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.3, 1.0, 2.5]),
        top_k=st.sampled_from([0, 1, 2, 7, 60, 1000]),
        top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
        min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    ),
    seed=st.integers(0, 1000),
    distinct=st.sampled_from([3, 1000]),
    vocab=st.sampled_from([5, 60, 601]),
    first_look=st.sampled_from([1, 4, 256]),
)
def test_filters_equal_the_plain_ones(
    params: SamplingParams, seed: int, distinct: int, vocab: int, first_look: int
) -> None:
    """Ties (3 distinct logits) and the growing look included."""
    rng = np.random.default_rng(seed)
    logits = (rng.integers(0, distinct, vocab) / distinct * 6).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "_FIRST_LOOK", first_look)
        kept = kept_tokens(logits, params)
    expected = kept_naively(logits, params)
    assert (sorted(expected) if kept is None else expected) == (
        list(range(vocab)) if kept is None else kept.tolist()
    )


@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_likeliest_come_in_order_with_lower_ids_first(count: int) -> None:
    logits = np.array([0.0, 3.0, -0.0, 3.0, -np.inf, -2.0], np.float32)
    assert likeliest(logits, count).tolist() == [1, 3, 0, 2, 5, 4][:count]


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
    assert likeliest(logits, min(count, vocab)).tolist() == expected[: min(count, vocab)]
