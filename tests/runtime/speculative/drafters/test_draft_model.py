"""Drafts by a model of its own: plain decoding's text, whatever happens to requests and blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.speculative.drafters.draft_model import DraftModel
from optc.runtime.speculative.proposer import DraftRequest
from tests.runtime.speculative.test_speculator import request as new_request
from tests.runtime.support.toy import VOCAB, ToyExecutable, toy_spec
from tests.runtime.support.traffic import (
    Arrival,
    alone,
    arrivals,
    drain,
    make_core,
    prompts,
    serve_with_cancels,
    tiny_plan,
    traffic_settings,
)


class DraftExecutable(ToyExecutable):
    """The target's toy model with some noise on its weights: 0 always agrees with it."""

    def __init__(self, windows: tuple[int, ...], noise: float) -> None:
        super().__init__(toy_spec(windows, max_rows=12, max_sequences=6))
        rng = np.random.default_rng(5)
        weights = self.model.embedding
        self.model = replace(self.model, embedding=weights + noise * rng.normal(size=weights.shape))


def draft_model(
    windows: tuple[int, ...] = (0,),
    *,
    noise: float = 0.0,
    spare: int = 60,
    budget: int = 12,
    prefix_cache: bool = True,
    least_chance: float = 0.0,
) -> DraftModel:
    executable = DraftExecutable(windows, noise)
    plan = tiny_plan(executable.spec, budget, spare)
    return DraftModel(
        executable,
        plan,
        token_budget=budget,
        prefix_cache=prefix_cache,
        least_chance=least_chance,
    )


def batches_of(draft: DraftModel) -> list[list[int]]:
    """Rows of each sequence in each step of the draft."""
    executable = draft.executable
    assert isinstance(executable, ToyExecutable)
    return [np.diff(batch.query_starts).tolist() for batch in executable.batches]


def spec_of(windows: tuple[int, ...] = (0,)) -> StepInterface:
    return toy_spec(windows, max_logit_rows=20)


PROMPT = [int(t) for t in np.random.default_rng(2).integers(0, VOCAB, 11)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("windows", [(0,), (0, 5), (3, 9)])
def test_a_draft_equal_to_the_target_is_always_accepted(
    windows: tuple[int, ...], temperature: float
) -> None:
    """Also at a temperature: it draws with the target's noise, and follows its penalties."""
    params = SamplingParams(
        temperature=temperature, max_tokens=31, repetition_penalty=1.2, logprobs=1
    )
    expected = alone(spec_of(windows), PROMPT, params)
    draft = draft_model(windows)
    core, executable = make_core(spec_of(windows), draft, spare=60)
    request = core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    assert request.output.tolist() == expected.output.tolist()
    assert request.logprobs == expected.logprobs
    assert request.metrics.accepted_tokens == request.metrics.drafted_tokens == 24
    assert len(executable.batches) == 1 + 6, "the prompt, and 30 tokens by four drafts and a bonus"


@pytest.mark.parametrize(
    ("params", "stops"),
    [
        (SamplingParams(temperature=0, max_tokens=20), True),
        (SamplingParams(temperature=1.0, max_tokens=20), False),
    ],
)
def test_unlikely_drafts_are_the_last(params: SamplingParams, stops: bool) -> None:
    """Of greedy requests; at a temperature an unlikely draft holds as often as a likely one."""
    expected = alone(spec_of(), PROMPT, params)
    draft = draft_model(least_chance=1.0)  # no draft is quite certain
    core, executable = make_core(spec_of(), draft, drafts=3, spare=60)
    request = core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    assert request.output.tolist() == expected.output.tolist()
    steps = 10 if stops else 5  # 19 tokens behind the prompt's, by one draft or three a step
    assert len(executable.batches) == 1 + steps


def test_only_what_is_new_is_computed() -> None:
    draft = draft_model()
    core, _ = make_core(spec_of(), draft, drafts=3, spare=60)
    core.add(
        CompletionInput(
            np.array(PROMPT, np.int32), SamplingParams(temperature=0, max_tokens=9), seed=7
        )
    )
    drain(core, draft.check_integrity)
    # The prompt and the first token; then, all being accepted, the last draft and the bonus.
    assert batches_of(draft) == [[12], [1], [1], [2], [1], [1]]


def test_rejected_drafts_are_computed_again() -> None:
    params = SamplingParams(temperature=0, max_tokens=30)
    draft = draft_model((0, 5), noise=0.4)
    core, _ = make_core(spec_of((0, 5)), draft, spare=60)
    request = core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    assert request.output.tolist() == alone(spec_of((0, 5)), PROMPT, params).output.tolist()
    metrics = core.metrics()
    assert 0 < metrics.accepted_tokens < metrics.drafted_tokens


def test_all_requests_are_drafted_for_in_one_batch() -> None:
    draft = draft_model()
    core, _ = make_core(spec_of(), draft, drafts=3, spare=60)
    prompts = [PROMPT[:n] for n in (2, 3, 4)]
    params = SamplingParams(temperature=0, max_tokens=5)
    for prompt in prompts:
        core.add(CompletionInput(np.array(prompt, np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    assert batches_of(draft) == [[3, 4, 5], [1, 1, 1], [1, 1, 1]]


def test_a_long_prompt_is_caught_up_with_in_pieces_without_holding_up_others() -> None:
    draft = draft_model(budget=12)
    core, _ = make_core(spec_of(), draft, drafts=2, spare=60)
    params = SamplingParams(temperature=0, max_tokens=20)
    core.add(CompletionInput(np.array([1] * 35, np.int32), params, seed=7))
    core.add(CompletionInput(np.array([2, 3], np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    rows = batches_of(draft)
    assert max(sum(batch) for batch in rows) == 12
    assert core.metrics().drafted_tokens == core.metrics().accepted_tokens > 20


def test_completions_of_one_prompt_share_its_keys_and_values() -> None:
    draft = draft_model()
    core, _ = make_core(spec_of(), draft, drafts=2, spare=60)
    params = SamplingParams(temperature=0.9, max_tokens=8)
    leader = core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=3))
    others = [
        core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=3, index=i), leader)
        for i in (1, 2)
    ]
    drain(core, draft.check_integrity)
    for request in (leader, *others):
        expected = make_core(spec_of())[0]
        prompt = np.array(PROMPT, np.int32)
        plain = expected.add(CompletionInput(prompt, params, seed=3, index=request.index))
        drain(expected)
        assert request.output.tolist() == plain.output.tolist()
    assert sorted(batches_of(draft)[0], reverse=True) == [12], "one computes the prompt"
    assert 12 not in batches_of(draft)[1]


def test_a_request_beyond_the_drafts_context_decodes_plainly() -> None:
    draft = draft_model()
    draft.plan = replace(draft.plan, max_context=20)
    core, _ = make_core(spec_of(), draft, spare=60)
    params = SamplingParams(temperature=0, max_tokens=30)
    request = core.add(CompletionInput(np.array(PROMPT, np.int32), params, seed=7))
    drain(core, draft.check_integrity)
    assert request.output.tolist() == alone(spec_of(), PROMPT, params).output.tolist()
    assert 0 < core.metrics().drafted_tokens < 12


def test_blocks_of_requests_that_are_not_drafted_for_are_taken() -> None:
    draft = draft_model(spare=0)  # 16 blocks: one long request
    core, _ = make_core(spec_of(), draft, drafts=2, spare=60)
    params = SamplingParams(temperature=0, max_tokens=3)
    first = core.add(
        CompletionInput(np.array([3] * 50, np.int32), replace_tokens(params, 12), seed=7)
    )
    while first.num_output < 2:
        core.step()
    second = core.add(
        CompletionInput(np.array([5] * 40, np.int32), replace_tokens(params, 20), seed=7)
    )
    drain(core, draft.check_integrity)
    for request, prompt in ((first, [3] * 50), (second, [5] * 40)):
        expected = alone(spec_of(), prompt, replace_tokens(params, len(request.output)))
        assert request.output.tolist() == expected.output.tolist()
    assert second.metrics.drafted_tokens > 0
    assert draft.available() == draft.plan.blocks


def long_request(number: int, tokens: int, leader: int | None = None) -> Request:
    return Request(
        number,
        CompletionInput(
            np.full(tokens, number + 1, np.int32),
            SamplingParams(temperature=0),
            seed=0,
            index=0,
            stream=None,
        ),
        max_length=60,
        tables=BlockTables.empty(1),
        metrics=RequestMetrics(0.0),
        leader_id=leader,
    )


def drafts_of(draft: DraftModel, request: Request) -> list[int]:
    """One draft, however many steps it takes to read the prompt."""
    for _ in range(9):
        (made,) = draft.propose([DraftRequest(request, 1)])
        draft.check_integrity()
        if made.tokens:
            return made.tokens
    raise AssertionError("nothing was drafted")


def test_a_leak_is_found() -> None:
    draft = draft_model()
    drafts_of(draft, long_request(0, 5))
    (text,) = draft._texts.values()
    text.tables.blocks[0].pop()
    with pytest.raises(RuntimeError, match=r"^KV group 0: holders of blocks .* do not match"):
        draft.check_integrity()


def test_no_more_blocks_are_taken_than_are_needed() -> None:
    draft = draft_model(spare=0, prefix_cache=False)
    (total,) = draft.available()
    first, second, third = (long_request(number, 4 * (total // 2 - 1)) for number in range(3))
    for request in (first, second, third):
        drafts_of(draft, request)
    pending = [draft.pending(request) for request in (first, second, third)]
    assert pending == [first.num_tokens, 0, 0], "the first gave its blocks, which were enough"


def test_a_request_beyond_the_context_does_not_keep_others_from_drafts() -> None:
    draft = draft_model()
    draft.plan = replace(draft.plan, max_context=12)
    longer, other = long_request(0, 5), long_request(1, 6)
    made = draft.propose([DraftRequest(longer, 8), DraftRequest(other, 2)])
    assert [len(drafts.tokens) for drafts in made] == [0, 2]


def test_the_context_may_be_filled_to_its_end() -> None:
    draft = draft_model()
    draft.plan = replace(draft.plan, max_context=12)
    (made,) = draft.propose([DraftRequest(long_request(0, 6), 6)])
    assert len(made.tokens) == 6


@pytest.mark.parametrize(
    ("tokens", "first"),
    [(4, [4, 4, 4]), (5, [5, 6])],
    ids=["a prompt of one block has none to share", "one computes what both begin with"],
)
def test_who_waits_for_a_prompt_does_not_keep_others_from_drafts(
    tokens: int, first: list[int]
) -> None:
    """Two completions of one prompt, and a text of its own that is no shorter."""
    draft = draft_model()
    leader, shares = long_request(0, tokens), long_request(1, tokens, leader=0)
    other = long_request(2, first[-1])
    draft.propose([DraftRequest(one, 1) for one in (leader, shares, other)])
    assert batches_of(draft)[0] == first


def test_prefixes_are_kept_if_nothing_is_said() -> None:
    executable = DraftExecutable((0,), 0.0)
    draft = DraftModel(executable, tiny_plan(executable.spec, 12, 60), token_budget=12)
    for number in (0, 1):
        request = long_request(0, 11)
        request.id = number
        drafts_of(draft, request)
        draft.forget(request)
    assert batches_of(draft) == [[11], [3]], "two blocks of four are found"


def test_no_step_has_more_sequences_than_the_engine_takes() -> None:
    draft = draft_model()
    wanted = [DraftRequest(long_request(number, 1), 1) for number in range(8)]
    made = draft.propose(wanted)
    assert batches_of(draft) == [[1] * 6]
    assert [len(drafts.tokens) for drafts in made] == [1] * 6 + [0] * 2


def replace_tokens(params: SamplingParams, count: int) -> SamplingParams:
    return replace(params, max_tokens=count)


@traffic_settings()
@given(
    arriving=arrivals(prompts(24), most=6),
    cancelled=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 16)), max_size=3),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    draft_budget=st.integers(1, 12),
    draft_spare=st.integers(0, 4),
    noise=st.sampled_from([0.0, 0.3, 5.0]),
    drafts=st.integers(1, 7),
    prefix_cache=st.booleans(),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    cancelled: list[tuple[int, int]],
    windows: tuple[int, ...],
    budget: int,
    spare: int,
    draft_budget: int,
    draft_spare: int,
    noise: float,
    drafts: int,
    prefix_cache: bool,
) -> None:
    """Batch mates, chunks, prefix hits, preemption, cancellation, tiny pools on both sides."""
    draft = draft_model(
        windows, noise=noise, spare=draft_spare, budget=draft_budget, prefix_cache=prefix_cache
    )
    core, _ = make_core(
        spec_of(windows),
        draft,
        drafts=drafts,
        budget=budget,
        spare=spare,
        prefix_cache=prefix_cache,
    )
    serve_with_cancels(core, arriving, cancelled, draft.check_integrity)
    assert draft.available() == draft.plan.blocks


def test_a_block_that_is_held_twice_is_found() -> None:
    draft = draft_model()
    draft.propose([DraftRequest(new_request(1), 2)])
    draft.check_integrity()
    draft._blocks.pools[0].take(1)
    with pytest.raises(RuntimeError):
        draft.check_integrity()


def test_the_engine_is_released() -> None:
    draft = draft_model()
    draft.close()
    assert isinstance(draft.executable, ToyExecutable)
    assert draft.executable.closed
