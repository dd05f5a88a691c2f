"""The verifier's rule, and that its distribution is the model's, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from optc.runtime.executable.executable import Float32, Int32
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import NoToken, Row, Sampled, sample
from optc.runtime.step.verifier import Verdict
from tests.runtime.speculative.verifying import verify_logits as verify

Verify = Callable[[Float32, Row, Int32], Verdict]

#: A model of three tokens whose logits depend on the last one.
LOGITS = np.log(np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]], np.float32))
#: The chi-squared value that one in 10^5 correct verifiers exceeds, with 8 degrees of freedom.
LIMIT = 37.3


def row(path: list[int], seed: int = 0, **params: object) -> Row:
    sampling = SamplingParams(**{"temperature": 1.0, **params})  # type: ignore[arg-type]
    return Row(sampling, seed, 0, np.array(path, np.int32), 1)


def drawn(verdict: Verdict) -> list[int]:
    return [sampled.token for sampled in verdict.drawn if isinstance(sampled, Sampled)]


def test_accepted_recovered_and_bonus_tokens() -> None:
    greedy = row([0, 0, 0, 2], temperature=0)
    drafted = np.array([0, 0, 2], np.int32)
    path_logits = LOGITS[[0, 0, 0, 2]]
    verdict = verify(path_logits, greedy, drafted)
    assert (drawn(verdict), verdict.accepted) == ([0, 0, 0], 2), "two accepted, one recovered"
    verdict = verify(path_logits[:3], row([0, 0, 0], temperature=0), drafted[:2])
    assert (drawn(verdict), verdict.accepted) == ([0, 0, 0], 2), "two accepted and the bonus"
    verdict = verify(path_logits[:1], row([0], temperature=0), drafted[:0])
    assert (drawn(verdict), verdict.accepted) == ([0], 0), "plain decoding"


def test_a_nan_ends_it_after_what_was_accepted() -> None:
    logits = LOGITS[[0, 0, 0]].copy()
    logits[1] = np.nan
    verdict = verify(logits, row([0, 0, 0], temperature=0), np.array([0, 0], np.int32))
    assert verdict.drawn == [Sampled(0, None), NoToken.NAN]
    assert verdict.accepted == 1


def test_penalties_follow_the_drafted_path() -> None:
    logits = np.tile(np.array([[0.0, 1.0, 0.9]], np.float32), (3, 1))
    penalized = row([0, 1, 2], temperature=0, presence_penalty=0.5)
    verdict = verify(logits, penalized, np.array([1, 2], np.int32))
    assert (drawn(verdict), verdict.accepted) == ([1, 2, 1], 2)


def plain(seed: int, count: int) -> list[int]:
    path = [0]
    for _ in range(count):
        sampled = sample(LOGITS[path[-1:]], [row(path, seed)])[0]
        assert isinstance(sampled, Sampled)
        path.append(sampled.token)
    return path[1:]


def speculated(rule: Verify, seed: int, drafts: list[int]) -> list[int]:
    """Two tokens: one step with drafts, and plain ones until there are enough."""
    path = [0, *drafts]
    output = drawn(rule(LOGITS[path], row(path, seed), np.array(drafts, np.int32)))
    while len(output) < 2:
        path = [0, *output]
        output += drawn(rule(LOGITS[path[-1:]], row(path, seed), np.array([], np.int32)))
    return output[:2]


@pytest.mark.parametrize("drafts", [[0], [1, 2], [2, 2, 2], [0, 1]])
def test_seeded_tokens_are_those_of_plain_decoding(drafts: list[int]) -> None:
    for seed in range(200):
        assert speculated(verify, seed, drafts) == plain(seed, 2)


def chi_squared(rule: Verify, drafts: list[int], seeds: int = 3000) -> float:
    """Of the pairs of first two tokens against the model's own distribution."""
    counts = np.zeros((3, 3))
    for seed in range(seeds):
        first, second = speculated(rule, seed, drafts)
        counts[first, second] += 1
    expected = seeds * np.exp(LOGITS[0])[:, None] * np.exp(LOGITS)
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("drafts", [[1, 2], [2, 0]])
def test_the_distribution_is_the_models(drafts: list[int]) -> None:
    assert chi_squared(verify, drafts) < LIMIT


def lenient(logits: Float32, of: Row, drafted: Int32) -> Verdict:
    """Wrong: accepts a draft that is merely likely enough (the typical mistake)."""
    accepted = [Sampled(int(token), None) for token in drafted if logits[0, token] > np.log(0.2)]
    if len(drafted) and len(accepted) == len(drafted):
        return Verdict([*accepted, *verify(logits[-1:], of, drafted[:0]).drawn], (0,))
    return verify(logits, of, drafted)


def redrawing(logits: Float32, of: Row, drafted: Int32) -> Verdict:
    """Wrong: where a draft is rejected it draws from the next row, as if it had been accepted."""
    verdict = verify(logits, of, drafted)
    if verdict.accepted == len(drafted):
        return verdict
    wrong = verify(logits[verdict.accepted + 1 :][:1], of, drafted[:0])
    return Verdict([*verdict.drawn[:-1], *wrong.drawn], verdict.path)


@pytest.mark.parametrize("wrong", [lenient, redrawing])
def test_a_wrong_verifier_is_found(wrong: Verify) -> None:
    assert chi_squared(wrong, [1]) > LIMIT
