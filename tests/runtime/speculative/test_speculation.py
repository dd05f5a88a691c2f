"""Speculation in the core: the output of plain decoding, whatever is drafted and whatever runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.ngram import NGramProposer
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.speculative.kinds import parse_kinds
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.proposer import DraftRequest, Drafts
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.support.toy import VOCAB, ToyExecutable, toy_spec
from tests.runtime.support.traffic import (
    Arrival,
    alone,
    arrivals,
    drain,
    make_core,
    prompts,
    serve,
    traffic_settings,
)


class Oracle:
    """Drafts from a known text, with every ``spoil``-th draft replaced by another token."""

    def __init__(self, text: list[int], spoil: int) -> None:
        self.text = text
        self.spoil = spoil

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        return [self._draft(request.num_tokens, count) for request, count in wanted]

    def forget(self, request: Request) -> None:
        """Nothing is kept."""

    def _draft(self, seen: int, count: int) -> Drafts:
        return Drafts(
            [
                (token + 1) % VOCAB if at % self.spoil == 0 else token
                for at, token in enumerate(self.text[seen:][:count], seen)
            ]
        )


def spec_of(windows: tuple[int, ...]) -> StepInterface:
    return toy_spec(windows, max_logit_rows=20)


@pytest.mark.parametrize("spoil", [1, 2, 3, 100])
@pytest.mark.parametrize("windows", [(0,), (0, 5), (0, 1), (3, 9)])
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_good_and_bad_drafts_give_the_text_of_plain_decoding(
    temperature: float, windows: tuple[int, ...], spoil: int
) -> None:
    spec = spec_of(windows)
    prompt = [int(t) for t in np.random.default_rng(2).integers(0, VOCAB, 13)]
    params = SamplingParams(
        temperature=temperature, max_tokens=30, logprobs=2, repetition_penalty=1.2
    )
    expected = alone(spec, prompt, params)
    text = expected.tokens.tolist()
    core, executable = make_core(spec, Oracle(text, spoil), drafts=5)
    request = core.add(CompletionInput(np.array(prompt, np.int32), params, seed=7))
    drain(core)
    assert request.output.tolist() == expected.output.tolist()
    assert request.logprobs == expected.logprobs
    metrics = core.metrics()
    assert metrics.drafted_tokens == request.metrics.drafted_tokens > 0
    assert metrics.accepted_tokens == request.metrics.accepted_tokens
    assert len(executable.batches) == 1 + 29 - metrics.accepted_tokens
    if spoil == 1:
        assert metrics.accepted_tokens == 0
    if spoil == 100:  # five accepted and the bonus token in each of the steps after the prompt
        assert metrics.accepted_tokens == 29 - 5
    assert len(request.metrics.token_times_s) == 30
    assert metrics.free_blocks == metrics.total_blocks


def test_a_stop_among_accepted_drafts_ends_the_text_there() -> None:
    spec = spec_of((0,))
    whole = alone(spec, [1, 2, 3], SamplingParams(temperature=0, max_tokens=30))
    output = whole.output.tolist()
    stop = output[4]
    text = whole.tokens.tolist()
    core, _ = make_core(spec, Oracle(text, 100), drafts=8)
    params = SamplingParams(temperature=0, max_tokens=30, stop_token_ids=[stop])
    request = core.add(CompletionInput(np.array([1, 2, 3], np.int32), params, seed=7))
    drain(core)
    assert request.output.tolist() == output[: output.index(stop) + 1]
    assert request.finish_reason == "stop"


def test_drafts_never_exceed_the_logit_rows_nor_the_length() -> None:
    spec = replace(toy_spec((0,)), max_logit_rows=9)
    params = SamplingParams(temperature=0, max_tokens=20)
    text = alone(spec, [1, 2], params).tokens.tolist()
    core, executable = make_core(spec, Oracle(text * 2, 3), drafts=8)
    requests = [
        core.add(CompletionInput(np.array([1, 2], np.int32), params, seed=7)) for _ in range(4)
    ]
    drain(core)
    assert max(len(batch.logit_rows) for batch in executable.batches) == 9
    assert all(request.tokens.tolist() == text for request in requests)


def test_drafts_wait_for_prefills_and_preempt_nobody() -> None:
    spec = spec_of((0,))
    core, executable = make_core(spec, NGramProposer(16), drafts=6, budget=8, spare=0)
    params = SamplingParams(temperature=0, max_tokens=20)
    first = core.add(CompletionInput(np.array([1] * 8, np.int32), params, seed=7))
    core.step()
    core.add(CompletionInput(np.array([2] * 30, np.int32), params, seed=7))
    while first.num_output < 4:
        core.step()
    assert [np.diff(b.query_starts).tolist() for b in executable.batches[1:4]] == [[1, 7]] * 3


class PoisonedExecutable(ToyExecutable):
    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        logits[batch.positions[batch.logit_rows] == 10] = np.nan
        return logits


def test_a_nan_behind_accepted_drafts_keeps_them() -> None:
    spec = spec_of((0,))
    params = SamplingParams(temperature=0, max_tokens=20)
    whole = alone(spec, [5, 6], params)
    text = whole.tokens.tolist()
    executable = PoisonedExecutable(spec)
    core = Core(
        executable,
        KVPlan(4, (30,), 0, 64),
        ServeSettings(token_budget=16),
        speculator=Speculator([DraftSource(Oracle(text, 100), Fixed(6))]),
    )
    request = core.add(CompletionInput(np.array([5, 6], np.int32), params, seed=7))
    drain(core)
    assert request.finish_reason == "error"
    assert request.tokens.tolist() == text[:11]


#: A bias towards few tokens makes texts repeat, so that there is what to draft.
REPEATING = {"logit_bias": {0: 9.0, 1: 9.0}}
repeating = st.lists(st.integers(0, 1), min_size=1, max_size=20)


@traffic_settings()
@given(
    arriving=arrivals(st.one_of(prompts(), repeating), most=6, options=[REPEATING]),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    drafts=st.integers(1, 7),
    prefix_cache=st.booleans(),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    windows: tuple[int, ...],
    budget: int,
    spare: int,
    drafts: int,
    prefix_cache: bool,
) -> None:
    """Batch mates, chunks, prefix hits, preemption: no leak, and token-for-token the same."""
    spec = spec_of(windows)
    core, _ = make_core(
        spec,
        NGramProposer(16),
        drafts=drafts,
        budget=budget,
        spare=spare,
        prefix_cache=prefix_cache,
    )
    for request, each in zip(serve(core, arriving), arriving, strict=True):
        expected = alone(spec, each.prompt, each.params)
        assert request.output.tolist() == expected.output.tolist()


def test_forked_completions_draft_each_for_itself() -> None:
    spec = spec_of((0, 5))
    params = SamplingParams(temperature=0.9, max_tokens=20, logit_bias={0: 9.0, 1: 9.0})
    prompt = np.array([0, 1, 0, 1, 1], np.int32)
    outputs = []
    for proposer in (None, NGramProposer(16)):
        core, _ = make_core(spec, proposer)
        leader = core.add(CompletionInput(prompt, params, seed=3))
        others = [
            core.add(CompletionInput(prompt, params, seed=3, index=i), leader) for i in (1, 2)
        ]
        drain(core)
        assert core.metrics().forked == 2
        outputs.append([request.output.tolist() for request in (leader, *others)])
    assert core.metrics().accepted_tokens > 0
    assert outputs[0] == outputs[1]


def test_the_engine_speculates_when_asked_to() -> None:
    spec = toy_spec((0,), max_logit_rows=20)
    params = SamplingParams(temperature=0, max_tokens=40, logit_bias={0: 99.0})
    results = []
    drafted = []
    for kind in ("off", "ngram"):
        executable = ToyExecutable(spec)
        drafting = Drafting(parse_kinds(kind), count=None if kind == "off" else 4)
        with Engine(lambda e=executable: e, drafting=drafting) as engine:  # type: ignore[misc]
            results.append(engine.generate([[0, 0, 0, 0]], params)[0].token_ids)
            drafted.append(engine.metrics().drafted_tokens)
    assert results[0] == results[1]
    assert drafted[0] == 0 < drafted[1]
