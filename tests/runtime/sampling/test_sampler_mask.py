"""A masked row draws as if the forbidden tokens had no probability; log-probabilities stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Mask, NoToken, Row, Sampled, sample, unpacked
from tests.runtime.speculative.verifying import verify_logits

#: Vocabularies that end within a word, at its end and just after.
VOCABULARIES = (3, 31, 32, 33, 64, 100)
OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 3.0, "logit_bias": {2: 5.0}},
    {},
    {"temperature": 1.7, "presence_penalty": 1.0},
    {"top_k": 2},
    {"top_p": 0.6},
    {"min_p": 0.2},
    {"top_k": 5, "top_p": 0.9, "min_p": 0.01},
)


def mask_of(allowed: list[int], vocab: int) -> Mask:
    """Bits set one by one, as the definition has them; those beyond the vocabulary are set."""
    mask = np.zeros(-(-vocab // 32), np.uint32)
    for token in [*allowed, *range(vocab, 32 * len(mask))]:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def row(mask: Mask | None, seed: int = 0, **options: Any) -> Row:
    return Row(SamplingParams(**options), seed, 0, np.array([0, 1, 1], np.int32), 1, mask)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    vocab=st.sampled_from(VOCABULARIES),
    seed=st.integers(0, 2**32),
    options=st.sampled_from(OPTIONS),
    data=st.data(),
)
def test_the_draw_is_that_of_a_model_that_gives_the_others_no_probability(
    vocab: int, seed: int, options: dict[str, Any], data: st.DataObject
) -> None:
    allowed = sorted(data.draw(st.sets(st.integers(0, vocab - 1), min_size=1)))
    logits = np.random.default_rng(seed).normal(size=(1, vocab)).astype(np.float32) * 3
    impossible = np.full_like(logits, -1e9)
    impossible[0, allowed] = logits[0, allowed]
    masked = sample(logits, [row(mask_of(allowed, vocab), seed, **options)])[0]
    assert masked == sample(impossible, [row(None, seed, **options)])[0]
    assert isinstance(masked, Sampled)
    assert masked.token in allowed
    assert np.flatnonzero(unpacked(mask_of(allowed, vocab), vocab)).tolist() == allowed


@pytest.mark.parametrize("options", OPTIONS)
def test_a_mask_that_allows_all_changes_nothing(options: dict[str, Any]) -> None:
    logits = np.random.default_rng(0).normal(size=(20, 40)).astype(np.float32)
    plain = sample(logits, [row(None, seed, **options) for seed in range(20)])
    everything = mask_of(list(range(40)), 40)
    assert sample(logits, [row(everything, seed, **options) for seed in range(20)]) == plain


@pytest.mark.parametrize("options", OPTIONS)
def test_a_mask_of_one_token_decides(options: dict[str, Any]) -> None:
    logits = np.random.default_rng(1).normal(size=(1, 50)).astype(np.float32) * 20
    worst = int(np.argmin(logits))
    assert sample(logits, [row(mask_of([worst], 50), **options)]) == [Sampled(worst, None)]


def test_logprobs_are_those_of_the_unmasked_model() -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0]], np.float32)
    reference = logits[0].astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    (drawn,) = sample(logits, [row(mask_of([3], 4), logprobs=2)])
    assert isinstance(drawn, Sampled)
    assert drawn.logprobs is not None
    assert drawn.logprobs.logprob == pytest.approx(reference[3])
    assert [token for token, _ in drawn.logprobs.top] == [0, 1]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_mask_that_leaves_nothing_gives_no_token(options: dict[str, Any]) -> None:
    logits = np.zeros((1, 40), np.float32)
    assert sample(logits, [row(mask_of([], 40), **options)]) == [NoToken.NOTHING_ALLOWED]
    biased = {**options, "logit_bias": {7: -np.inf}}
    assert sample(logits, [row(mask_of([7], 40), **biased)]) == [NoToken.NOTHING_ALLOWED]


@pytest.mark.parametrize("at", [2, 5])
def test_a_nan_is_found_behind_the_mask_too(at: int) -> None:
    logits = np.zeros((1, 40), np.float32)
    logits[0, at] = np.nan
    assert sample(logits, [row(mask_of([5], 40))]) == [NoToken.NAN]


def test_masks_follow_the_drafted_path() -> None:
    logits = np.tile(np.array([[3.0, 2.0, 1.0]], np.float32), (3, 1))
    path = Row(SamplingParams(temperature=0), 0, 0, np.array([0, 1, 2], np.int32), 1)
    masks = [mask_of([1, 2], 3), mask_of([2], 3), mask_of([0, 1], 3)]
    verdict = verify_logits(logits, path, np.array([1, 2], np.int32), masks)
    assert verdict.drawn == [Sampled(1, None), Sampled(2, None), Sampled(0, None)]
    assert verdict.accepted == 2
    masks[1] = mask_of([], 3)
    verdict = verify_logits(logits, path, np.array([1, 2], np.int32), masks)
    assert verdict.drawn == [Sampled(1, None), NoToken.NOTHING_ALLOWED]
    assert verdict.accepted == 1
