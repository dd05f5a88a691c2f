"""Lookahead: what the model said behind rejected drafts is drafted, and never changes the text."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.lookahead import LookaheadProposer
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.speculative.test_speculator import request as new_request
from tests.runtime.support.toy import VOCAB, ToyExecutable, toy_spec


def propose(proposer: LookaheadProposer, request: Request, limit: int = 8) -> list[int]:
    return proposer.propose([DraftRequest(request, limit)])[0].tokens


def test_answers_to_rejected_drafts_are_the_next_guesses() -> None:
    proposer, request = LookaheadProposer(), new_request(0)
    request.append(1)  # the text is 0 1 2 3 1
    assert propose(proposer, request) == [2, 3, 1, 2, 3, 1, 2, 3], "the text's own n-grams"
    # accepted 2; the model draws 9 where 3 was drafted, and says 11, 12 behind 3 and the second 1
    proposer.learn(request, DraftOutcome(3, (0,), [2, 9, 11, 12]))
    for token in (2, 9):
        request.append(token)
    assert propose(proposer, request) == [11, 12], "nothing follows 9 yet, so the guesses stand"


def test_trajectories_fill_the_pool() -> None:
    proposer, request = LookaheadProposer(), new_request(0)
    request.append(20)
    assert propose(proposer, request) == []
    request.append(1)
    assert propose(proposer, request, 1) == [2]
    proposer.learn(request, DraftOutcome(1, (), [30, 31]))  # 30 instead of 2; 31 behind 2
    request.append(30)
    assert propose(proposer, request) == [31]
    proposer.learn(request, DraftOutcome(1, (), [40, 32]))  # 40 instead of 31; 32 behind 31
    for token in (40, 2):
        request.append(token)
    assert propose(proposer, request) == [31, 32], "2, 31, 32: each was said behind the one before"


def test_requests_are_kept_apart_and_forgotten() -> None:
    proposer, first, second = LookaheadProposer(), new_request(0), new_request(1)
    for request in (first, second):
        request.append(1)
        propose(proposer, request, 1)
    proposer.learn(first, DraftOutcome(1, (), [30, 31]))
    first.append(30)
    second.append(30)
    assert [
        d.tokens for d in proposer.propose([DraftRequest(first, 4), DraftRequest(second, 4)])
    ] == [[31], []]
    proposer.forget(first)
    proposer.forget(new_request(5))
    assert propose(proposer, first) == []


def outputs(speculator: Speculator | None, temperature: float) -> tuple[list[list[int]], Core]:
    spec = toy_spec((0, 5), max_logit_rows=20)
    core = Core(
        ToyExecutable(spec),
        KVPlan(4, (90, 90), 0, 64),
        ServeSettings(token_budget=16),
        speculator=speculator,
    )
    params = SamplingParams(
        temperature=temperature, max_tokens=40, logit_bias=dict.fromkeys(range(4), 9.0)
    )
    rng = np.random.default_rng(4)
    requests = [
        core.add(CompletionInput(rng.integers(0, VOCAB, 7).astype(np.int32), params, seed=7))
        for _ in range(3)
    ]
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    return [request.output.tolist() for request in requests], core


@pytest.mark.parametrize("drafts", [1, 4, 7])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(temperature: float, drafts: int) -> None:
    lookahead = LookaheadProposer()
    source = DraftSource(lookahead, Fixed(drafts), lookahead)
    expected, _ = outputs(None, temperature)
    got, core = outputs(Speculator([source]), temperature)
    assert got == expected
    assert core.metrics().accepted_tokens > 0


def test_guesses_are_for_one_step_only() -> None:
    proposer, request = LookaheadProposer(), new_request(0)
    request.append(1)
    assert propose(proposer, request, 1) == [2]
    proposer.learn(request, DraftOutcome(1, (), [30, 31]))
    request.append(30)
    assert propose(proposer, request) == [31]
    request.append(20)  # a step without drafts: nothing was learnt from it
    assert propose(proposer, request) == []


def test_what_a_forgotten_request_said_is_gone() -> None:
    proposer, request = LookaheadProposer(), new_request(0)
    for token in (40, 41, 42):
        request.append(token)
    propose(proposer, request, 0)
    proposer.forget(request)
    again = new_request(0)  # the same id, another text
    again.append(40)
    assert propose(proposer, again) == []
