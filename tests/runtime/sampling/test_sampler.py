"""Drawn tokens follow the stated distribution; penalties and log-probabilities are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.executable.executable import Float32
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.noise import gumbel, words
from optc.runtime.sampling.sampler import NoToken, Row, Sampled, sample
from optc.runtime.scoring.token_logprobs import TokenLogprobs

LOGITS = np.array([1.0, 0.2, -1.0, 2.0, 0.9, -0.5, 1.7, 0.0], np.float32)


def row(params: SamplingParams, seed: int = 0, tokens: tuple[int, ...] = (0,)) -> Row:
    return Row(params, seed, 0, np.array(tokens, np.int32), 1)


def draw(logits: Float32, rows: list[Row]) -> list[Sampled]:
    drawn = [sampled for sampled in sample(logits, rows) if isinstance(sampled, Sampled)]
    assert len(drawn) == len(rows)
    return drawn


def exact_probabilities(params: SamplingParams) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Penalties aside, the distribution that the parameters state, one filter after the other."""
    order = np.argsort(-LOGITS, kind="stable")
    weights = np.exp(LOGITS.astype(np.float64) / params.temperature)
    if params.top_k > 0:
        weights[order[params.top_k :]] = 0
    before = np.cumsum(weights[order]) - weights[order]
    weights[order[before >= params.top_p * weights.sum()]] = 0
    weights[weights < params.min_p * weights.max()] = 0
    probabilities: np.ndarray[Any, np.dtype[np.float64]] = weights / weights.sum()
    return probabilities


def chi_squared_bound(freedom: int) -> float:
    """Value that chi-squared exceeds with probability 1e-5 (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 4.265 * np.sqrt(spread)) ** 3)


def chi_squared(counts: Any, expected: Any) -> tuple[float, int]:
    possible = expected > 0
    assert counts[~possible].sum() == 0, "a filtered token was drawn"
    distance = (counts[possible] - expected[possible]) ** 2 / expected[possible]
    return float(distance.sum()), int(possible.sum()) - 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 1.8},
        {"top_k": 3},
        {"top_p": 0.8},
        {"min_p": 0.25},
        {"temperature": 0.8, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    ],
)
def test_frequencies_follow_the_distribution(options: dict[str, Any]) -> None:
    params = SamplingParams(**options)
    count = 4000
    rows = [row(params, seed) for seed in range(count)]
    drawn = [s.token for s in draw(np.tile(LOGITS, (count, 1)), rows)]
    expected = exact_probabilities(params) * count
    distance, freedom = chi_squared(np.bincount(drawn, minlength=8), expected)
    assert distance < chi_squared_bound(freedom)


def test_the_frequency_test_sees_a_wrong_temperature() -> None:
    count = 4000
    rows = [row(SamplingParams(temperature=0.8), seed) for seed in range(count)]
    drawn = [s.token for s in draw(np.tile(LOGITS, (count, 1)), rows)]
    expected = exact_probabilities(SamplingParams(temperature=1.0)) * count
    distance, freedom = chi_squared(np.bincount(drawn, minlength=8), expected)
    assert distance > chi_squared_bound(freedom)


def test_positions_of_one_seed_are_independent_draws() -> None:
    count = 4000
    params = SamplingParams()
    rows = [row(params, 7, (0,) * (1 + i)) for i in range(count)]
    drawn = np.array([s.token for s in draw(np.tile(LOGITS, (count, 1)), rows)])
    expected = exact_probabilities(params)
    pairs = np.bincount(drawn[::2] * 8 + drawn[1::2], minlength=64)
    distance, freedom = chi_squared(pairs, np.outer(expected, expected).ravel() * count / 2)
    assert distance < chi_squared_bound(freedom)


def test_batch_mates_do_not_change_a_draw() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(12, 5000)).astype(np.float32) * 3
    kinds: list[dict[str, Any]] = [
        {},
        {"top_k": 40},
        {"top_p": 0.99},
        {"temperature": 0},
        {"min_p": 0.01, "repetition_penalty": 1.2},
    ]
    rows = [row(SamplingParams(**kinds[i % 5]), i, (5, 6, 7)) for i in range(12)]
    together = draw(logits, rows)
    for i in range(12):
        assert draw(logits[i : i + 1], rows[i : i + 1]) == [together[i]]


@settings(deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([1e-5, 0.2, 1.0, 3.0, 50.0]),
    spread=st.sampled_from([0.0, 0.5, 4.0, 100.0]),
)
def test_tokens_that_cannot_win_are_left_out_without_a_trace(
    seed: int, temperature: float, spread: float
) -> None:
    """The same token as when the noise of the whole vocabulary is computed."""
    logits = np.random.default_rng(seed).normal(scale=spread, size=700).astype(np.float32)
    drawn = draw(logits[None], [row(SamplingParams(temperature=temperature), seed)])[0].token
    noise = gumbel(words(seed, 0, 0, 700))
    assert drawn == np.argmax(logits.astype(np.float64) / temperature + noise)


def test_greedy_takes_the_lowest_id_on_ties_and_changes_nothing() -> None:
    logits = np.array([[0, 2, 2, 1], [3, 3, 3, 3]], np.float32)
    logits.flags.writeable = False
    greedy = row(SamplingParams(temperature=0))
    assert [s.token for s in draw(logits, [greedy, greedy])] == [1, 0]


def test_one_kept_token_is_the_greedy_one() -> None:
    for options in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        drawn = draw(LOGITS[None], [row(SamplingParams(**options), 3)])
        assert drawn[0].token == 3


def test_penalties_and_bias_follow_their_formulas() -> None:
    params = SamplingParams(
        temperature=0,
        repetition_penalty=2.0,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        logit_bias={4: 0.75, 7: -np.inf},
    )
    state = row(params, tokens=(3, 2, 6, 6))  # prompt: 3; output: 2, 6, 6
    expected = LOGITS.astype(np.float64)
    expected[3] /= 2
    expected[6] /= 2
    expected[2] *= 2
    expected[2] -= 0.25 + 0.5
    expected[6] -= 0.25 + 1.0
    expected[4] += 0.75
    expected[7] = -np.inf
    # Draw, forbid what was drawn, and so read the whole order of the adjusted logits.
    order, bias = [], {4: 0.75, 7: -np.inf}
    for _ in range(7):
        changed = replace(params, logit_bias=dict(bias))
        drawn = draw(LOGITS[None], [Row(changed, 0, 0, state.tokens, 1)])
        order.append(drawn[0].token)
        bias[drawn[0].token] = -np.inf
    assert order == np.argsort(-expected, kind="stable")[:7].tolist()


def test_logprobs_are_the_models_own() -> None:
    params = SamplingParams(
        temperature=0.5, top_k=1, logprobs=3, repetition_penalty=9.0, logit_bias={6: 5}
    )
    drawn = draw(LOGITS[None], [row(params)])[0]
    reference = LOGITS.astype(np.float64) - np.log(np.exp(LOGITS.astype(np.float64)).sum())
    assert drawn.token == 6
    assert isinstance(drawn.logprobs, TokenLogprobs)
    assert drawn.logprobs.logprob == pytest.approx(reference[6])
    assert [token for token, _ in drawn.logprobs.top] == [3, 6, 0]
    assert [p for _, p in drawn.logprobs.top] == pytest.approx(reference[[3, 6, 0]].tolist())
    only = draw(LOGITS[None], [row(SamplingParams(logprobs=0, seed=1))])[0]
    assert only.logprobs is not None
    assert only.logprobs.top == ()


def test_nan_rows_give_nothing_and_leave_the_others_alone() -> None:
    logits = np.stack([LOGITS, LOGITS, LOGITS])
    logits[1, 5] = np.nan
    for params in (SamplingParams(temperature=0), SamplingParams(), SamplingParams(top_k=2)):
        rows = [row(params, seed) for seed in range(3)]
        drawn = sample(logits, rows)
        assert drawn[1] is NoToken.NAN
        assert [drawn[0], drawn[2]] == draw(logits[[0, 2]], [rows[0], rows[2]])


def test_no_rows_give_no_tokens() -> None:
    assert sample(LOGITS[None], []) == []


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_each_penalty_works_alone(penalty: str) -> None:
    best, second = np.argsort(-LOGITS, kind="stable")[:2].tolist()
    options = {penalty: 2.0}
    assert float(LOGITS[best] - LOGITS[second]) < 2.0
    params = SamplingParams(temperature=0, **options)
    drawn = draw(LOGITS[None], [Row(params, 0, 0, np.array([1, best], np.int32), 1)])
    assert drawn[0].token != best
    plain = SamplingParams(temperature=0)
    drawn = draw(LOGITS[None], [Row(plain, 0, 0, np.array([1, best], np.int32), 1)])
    assert drawn[0].token == best


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1.0, 1e308])
@pytest.mark.parametrize("repetition", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("other", [-1e30, 0.0, 1e30])
@pytest.mark.parametrize("bias", [-3e38, 0.0, 3e38])
def test_no_parameters_that_are_allowed_leave_float32(
    temperature: float, repetition: float, other: float, bias: float
) -> None:
    """NumPy's warnings are errors here. Where they were allowed, larger penalties ended the
    engine."""
    params = SamplingParams(
        temperature=temperature,
        repetition_penalty=repetition,
        presence_penalty=other,
        frequency_penalty=other,
        logit_bias={3: bias},
        logprobs=2,
    )
    (drawn,) = draw(30 * LOGITS[None], [row(params, tokens=(0, *[3] * 4096))])
    assert drawn.logprobs is not None
