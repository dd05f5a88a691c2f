"""Structured output in the core: what plain masked decoding gives, whatever drafts and runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.executable.executable import StepInterface
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.speculative.drafters.draft_model import DraftModel
from optc.runtime.speculative.drafters.ngram import NGramProposer
from optc.runtime.speculative.proposer import DraftRequest, Drafts, Proposer
from tests.runtime.speculative.test_trees import RandomTrees
from tests.runtime.structured.cores import (
    BYTES,
    PROMPT,
    TOKENS,
    VOCAB,
    add,
    make_core,
    spec_of,
)
from tests.runtime.structured.grammars import STRUCTURES, decode_naively, matcher
from tests.runtime.support.toy import ToyExecutable, ToyModel
from tests.runtime.support.traffic import (
    Arrival,
    arrivals,
    drain,
    prompts,
    serve,
    tiny_plan,
    traffic_settings,
)


def expected(
    spec: StepInterface,
    prompt: list[int],
    asked: dict[str, Any],
    params: SamplingParams,
    index: int,
) -> list[int]:
    model = ToyModel.seeded(spec)
    return decode_naively(model, matcher(TOKENS, asked), prompt, params, 7, index)


@pytest.mark.parametrize(("asked", "accepts"), STRUCTURES)
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_what_ends_is_a_text_of_the_structure_and_that_of_plain_decoding(
    asked: dict[str, Any], accepts: Any, temperature: float
) -> None:
    spec = spec_of((0, 5))
    params = SamplingParams(temperature=temperature, max_tokens=50, repetition_penalty=1.5, **asked)
    core, _ = make_core(spec)
    requests = [add(core, PROMPT, params, index) for index in range(5)]
    drain(core)
    for request in requests:
        assert request.output.tolist() == expected(spec, PROMPT, asked, params, request.index)
        text = BYTES.decode(request.output.tolist())
        assert accepts(text) or request.finish_reason == "length", text
    if temperature:  # greedy decoding may nest for ever
        assert "stop" in [request.finish_reason for request in requests]


def asked_of(params: SamplingParams) -> dict[str, Any]:
    """The structure as it was asked for; empty for none."""
    kinds = {name for asked, _ in STRUCTURES for name in asked}
    return {name: getattr(params, name) for name in kinds if getattr(params, name) is not None}


prompt = st.one_of(prompts(vocab=VOCAB), st.sampled_from([PROMPT, PROMPT[:9]]))
structures = [{}, *(asked for asked, _ in STRUCTURES)]


@traffic_settings(80)
@given(
    arriving=arrivals(prompt, tokens=20, temperatures=(0.0, 1.0), options=structures),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    drafts=st.integers(1, 7),
    proposer=st.sampled_from(["none", "ngram", "trees"]),
    prefix_cache=st.booleans(),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    windows: tuple[int, ...],
    budget: int,
    spare: int,
    drafts: int,
    proposer: str,
    prefix_cache: bool,
) -> None:
    """Batch mates with and without a structure, chunks, prefix hits, preemption, drafts."""
    spec = spec_of(windows)
    texts = [
        each.prompt + expected(spec, each.prompt, asked, each.params, 0)
        for each in arriving
        if (asked := asked_of(each.params))
    ]
    by_name: dict[str, Proposer | None] = {
        "none": None,
        "ngram": NGramProposer(16),
        "trees": RandomTrees(texts or [[0]], seed=3),
    }
    core, _ = make_core(
        spec,
        by_name[proposer],
        drafts=drafts,
        budget=budget,
        spare=spare,
        prefix_cache=prefix_cache,
    )
    live = serve(core, arriving, add=add)
    found = [request.tokens.tolist() for request in live if request.constraint]
    assert found == texts


class Always:
    """Drafts the same tokens for ever."""

    def __init__(self, text: str) -> None:
        self.tokens = BYTES.encode(text)

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        return [Drafts(self.tokens[:limit]) for _, limit in wanted]

    def forget(self, request: Request) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("regex", ["(ab|ba){12}", "[ab]{24}"])
def test_drafts_are_accepted_between_forced_tokens_too(regex: str) -> None:
    spec = spec_of((0,))
    prompt = BYTES.encode("abababababab")
    params = SamplingParams(temperature=0.5, max_tokens=40, regex=regex)
    core, _ = make_core(spec, NGramProposer(16))
    request = add(core, prompt, params)
    drain(core)
    assert request.output.tolist() == expected(spec, prompt, {"regex": regex}, params, 0)
    assert 0 < request.metrics.accepted_tokens <= request.metrics.drafted_tokens


def draft_model(spec: StepInterface) -> DraftModel:
    """A draft that is the target: what it draws under the same mask is always accepted."""
    return DraftModel(ToyExecutable(spec), tiny_plan(spec, 16, 40), token_budget=16)


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_draft_model_drafts_under_the_grammar(temperature: float) -> None:
    spec = spec_of((0, 5))
    drafted = 0
    for asked, _ in STRUCTURES:
        params = SamplingParams(max_tokens=40, temperature=temperature, **asked)
        core, _ = make_core(spec, draft_model(spec), drafts=3)
        requests = [add(core, PROMPT, params, index) for index in range(2)]
        drain(core)
        for request in requests:
            assert request.output.tolist() == expected(spec, PROMPT, asked, params, request.index)
        assert core.metrics().accepted_tokens == core.metrics().drafted_tokens
        drafted += core.metrics().drafted_tokens
    assert drafted > 20, "without the mask all but none would be forbidden"


def test_forbidden_drafts_are_not_verified() -> None:
    core, executable = make_core(spec_of((0,)), Always("bz"))
    add(core, PROMPT, SamplingParams(max_tokens=12, regex="[ab]+"))
    drain(core)
    assert core.metrics().drafted_tokens > 0
    (z,) = BYTES.encode("z")
    assert not any(z in batch.tokens for batch in executable.batches)


def test_forced_tokens_take_no_step_and_are_counted() -> None:
    spec = spec_of((0,))
    text = "yes, but only if it does not rain"
    params = SamplingParams(max_tokens=70, choice=[text])
    core, executable = make_core(spec)
    request = add(core, PROMPT, params)
    drain(core)
    assert BYTES.decode(request.output.tolist()) == text
    assert len(executable.batches) == 2, "the prompt is longer than a step's rows"
    assert request.metrics.forced_tokens == core.metrics().forced_tokens == 32
    assert request.finish_reason == "stop"


def test_tokens_after_forced_ones_read_their_keys() -> None:
    spec = spec_of((0, 5))
    asked = {"regex": "[ab] a forced middle that is long [cd] [ef]"}
    params = SamplingParams(max_tokens=60, **asked)
    core, executable = make_core(spec, budget=8)
    requests = [add(core, PROMPT, params, index) for index in range(4)]
    drain(core)
    for request in requests:
        assert request.output.tolist() == expected(spec, PROMPT, asked, params, request.index)
        assert request.metrics.forced_tokens > 30
    assert max(len(batch.logit_rows) for batch in executable.batches) <= 4


def test_log_probabilities_are_there_for_every_token() -> None:
    spec = spec_of((0,))
    params = SamplingParams(max_tokens=20, choice=["yes, please"], logprobs=1)
    core, _ = make_core(spec)
    request = add(core, PROMPT, params)
    drain(core)
    assert [entry.token_id for entry in request.logprobs] == request.output.tolist()
    assert BYTES.decode(request.output.tolist()) == "yes, please"
    assert request.metrics.forced_tokens == 0


def test_forked_completions_have_a_state_each() -> None:
    spec = spec_of((0, 5))
    asked = {"regex": "(yes|no|maybe), [0-9]{3}"}
    params = SamplingParams(max_tokens=20, temperature=2.0, n=4, **asked)
    core, _ = make_core(spec, NGramProposer(16))
    leader = add(core, PROMPT, params)
    others = [add(core, PROMPT, params, i, leader=leader) for i in range(1, 4)]
    drain(core)
    assert core.metrics().forked == 3
    outputs = [request.output.tolist() for request in (leader, *others)]
    assert outputs == [expected(spec, PROMPT, asked, params, i) for i in range(4)]
    assert len({tuple(output) for output in outputs}) > 1


def test_preempted_requests_go_on_in_their_grammar() -> None:
    spec = spec_of((0,))
    asked = {"regex": "[a-d]{30}"}
    params = SamplingParams(max_tokens=40, **asked)
    core, _ = make_core(spec, spare=2, prefix_cache=False)
    requests = [add(core, PROMPT, params, index) for index in range(4)]
    drain(core)
    assert core.metrics().preemptions > 0
    for request in requests:
        assert request.output.tolist() == expected(spec, PROMPT, asked, params, request.index)


def test_keys_of_forced_tokens_are_cached() -> None:
    params = SamplingParams(max_tokens=60, regex="[a-d], a forced middle of some length, [x-z]")
    core, _ = make_core(spec_of((0,)))
    first = add(core, PROMPT, params)
    drain(core)
    assert first.metrics.forced_tokens > 20
    core.add(CompletionInput(first.tokens.copy(), SamplingParams(max_tokens=1), seed=1))
    drain(core)
    assert core.metrics().prefix_hit_tokens == (first.num_tokens - 1) // 4 * 4
