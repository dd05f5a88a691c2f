"""Prompts are scored as their rows are computed, whatever else runs: over the toy model, whose
logits a plain function gives too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs
from optc.runtime.scoring.scored_prompt import ScoredPrompt
from tests.runtime.speculative.test_trees import RandomTrees
from tests.runtime.support.toy import VOCAB, ToyExecutable, ToyModel, naive_logits, toy_spec
from tests.runtime.support.traffic import MOST_STEPS, drain, make_core, traffic_settings


class Asked(NamedTuple):
    """A request that scores its prompt."""

    prompt: list[int]
    max_tokens: int
    first: int
    top: int
    step: int


@st.composite
def asked(draw: st.DrawFn, shared: list[int]) -> Asked:
    """Of requests that begin alike, so that prefixes are found in the cache."""
    prompt = shared[: draw(st.integers(0, len(shared)))]
    prompt = prompt + draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12))
    return Asked(
        prompt,
        draw(st.sampled_from([0, 0, 1, 6])),
        draw(st.integers(0, len(prompt))),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 6)),
    )


def add(core: Core, one: Asked) -> Request:
    prompt = np.array(one.prompt, np.int32)
    params = SamplingParams(temperature=0, max_tokens=one.max_tokens, prompt_logprobs=one.top)
    scored = ScoredPrompt(prompt, one.first, one.top, VOCAB)
    return core.add(CompletionInput(prompt, params, seed=1, scored=scored))


def found(request: Request) -> PromptLogprobs:
    assert request.scored is not None
    result = request.scored.result()
    assert result is not None
    return result


def alone(spec: StepInterface, one: Asked) -> Request:
    core, _ = make_core(spec)
    request = add(core, one)
    drain(core)
    return request


def oracle(
    model: ToyModel, one: Asked
) -> Iterator[tuple[int, float, int, list[tuple[int, float]]]]:
    """Place, log-probability, rank and likeliest tokens, by softmax in float64."""
    for place in range(max(1, one.first), len(one.prompt)):
        logits = naive_logits(model, one.prompt[:place]).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        token = one.prompt[place]
        order = np.argsort(-logits, kind="stable")[: one.top]
        top = [(int(other), float(logprobs[other])) for other in order]
        yield place, float(logprobs[token]), 1 + int((logits > logits[token]).sum()), top


@traffic_settings(80)
@given(
    st.data(),
    st.lists(st.integers(0, VOCAB - 1), min_size=20, max_size=20),
    st.sampled_from([(0,), (0, 6), (5,)]),
    st.integers(1, 8),
    st.sampled_from([0, 3, 40]),
    st.booleans(),
    st.booleans(),
)
def test_a_prompt_scores_the_same_whatever_else_runs(
    data: st.DataObject,
    shared: list[int],
    windows: tuple[int, ...],
    logit_rows: int,
    spare: int,
    prefix_cache: bool,
    drafts: bool,
) -> None:
    """In chunks, from cached prefixes, preempted, beside others that score, generate and are
    cancelled, with as few rows of logits as there may be: bit for bit as alone, and as the softmax
    of the plain model's logits."""
    spec = toy_spec(windows, max_context=48, max_logit_rows=logit_rows, tree=drafts)
    requests = data.draw(st.lists(asked(shared), min_size=1, max_size=5))
    requests.sort(key=lambda one: one.step)
    each_alone = [alone(toy_spec(windows, max_context=48), one) for one in requests]
    texts = [[*one.prompt, *r.output] for one, r in zip(requests, each_alone, strict=True)]
    cancelled = data.draw(st.sets(st.integers(0, 7), max_size=1))
    core, executable = make_core(
        spec,
        RandomTrees(texts, 0) if drafts else None,
        budget=data.draw(st.sampled_from([2, 5, 16])),
        spare=spare,
        prefix_cache=prefix_cache,
    )
    live: dict[int, Request] = {}
    for step in range(MOST_STEPS):
        live |= {i: add(core, one) for i, one in enumerate(requests) if one.step == step}
        if step == 4:
            for index in cancelled & live.keys():
                core.cancel(live[index])
        if core.has_work:
            core.step()
        core.scheduler.check_integrity()
        if step > 6 and not core.has_work:
            break
    for index, (one, by_itself) in enumerate(zip(requests, each_alone, strict=True)):
        request = live[index]
        if request.finish_reason == "cancelled":
            continue
        assert request.finish_reason == "length"
        assert request.output.tolist() == by_itself.output.tolist()
        assert found(request) == found(by_itself)
        entries = found(request)
        for place, logprob, rank, top in oracle(executable.model, one):
            entry = entries[place]
            assert entry is not None
            assert (entry.token_id, entry.rank) == (one.prompt[place], rank)
            assert entry.logprob == pytest.approx(logprob, abs=1e-9)
            assert [token for token, _ in entry.top] == [token for token, _ in top]
            assert [p for _, p in entry.top] == pytest.approx([p for _, p in top], abs=1e-9)


def test_only_rows_that_score_are_computed_again() -> None:
    """A cached prefix is used up to the first row that scores."""
    core, executable = make_core(
        toy_spec(max_rows=64, max_context=64, max_logit_rows=16), budget=64
    )
    prompt = list(range(30))
    for first, rows in ((25, 29), (25, 5), (21, 9), (1, 29), (20, 13), (30, 1)):
        executable.batches.clear()
        request = add(core, Asked(prompt, 0, first, 0, 0))
        drain(core)
        computed = sum(len(batch.tokens) for batch in executable.batches)
        assert computed == rows, f"scored from {first}"
        assert len(found(request).logprobs) == 30 - first
        wanted = [len(batch.logit_rows) for batch in executable.batches]
        assert sum(wanted) == max(1, 30 - first)
        assert max(wanted) <= 16


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    core, _ = make_core(toy_spec())
    request = add(core, Asked([3], 0, 0, 2, 0))
    drain(core)
    assert request.finish_reason == "length"
    assert tuple(found(request)) == (None,)


def test_a_prompt_as_long_as_the_context_is_scored() -> None:
    core, _ = make_core(toy_spec(max_context=24), spare=0)
    request = add(core, Asked(list(range(24)), 0, 0, 0, 0))
    drain(core)
    assert len(found(request).logprobs) == 23


def test_who_decodes_goes_on_while_a_long_prompt_is_scored() -> None:
    core, executable = make_core(toy_spec(max_logit_rows=3, max_sequences=3), budget=16)
    others = [add(core, Asked([1, 2], 20, 2, 0, 0)) for _ in range(2)]
    core.step()
    add(core, Asked(list(range(30)), 0, 0, 0, 0))
    before = [other.num_output for other in others]
    for steps in range(1, 11):
        core.step()
        assert [other.num_output for other in others] == [count + steps for count in before]
        assert len(executable.batches[-1].logit_rows) == 3


class Broken(ToyExecutable):
    """Gives no numbers for one token."""

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        logits[batch.tokens[batch.logit_rows] == 40] = np.nan
        return logits


@pytest.mark.parametrize("max_tokens", [0, 4])
def test_logits_that_are_no_numbers_end_their_request_alone(max_tokens: int) -> None:
    core, _ = make_core(toy_spec())
    core.executable = Broken(core.executable.spec)
    core.executable.allocate_kv(core.scheduler.blocks.available(), 4)
    broken = add(core, Asked([1, 2, 40, 5], max_tokens, 0, 0, 0))
    last = add(core, Asked([1, 2, 5, 40], 0, 0, 0, 0))
    drain(core)
    assert (broken.finish_reason, last.finish_reason) == ("error", "length")
    assert "NaN" in str(broken.error)
    assert "prompt token 3" in str(broken.error)
    assert broken.scored is not None
    assert broken.scored.result() is None


def test_completions_of_one_prompt_share_its_scores() -> None:
    core, executable = make_core(toy_spec(), budget=16)
    leader = add(core, Asked([1, 2, 3, 4, 5], 3, 0, 1, 0))
    prompt = np.array([1, 2, 3, 4, 5], np.int32)
    follower: Any = core.add(
        CompletionInput(prompt, SamplingParams(temperature=0, max_tokens=3), seed=1, index=1),
        leader,
    )
    drain(core)
    assert len(executable.batches[0].tokens) == 5, "computed once"
    assert follower.output.tolist() == leader.output.tolist()
    assert len(found(leader)) == 5
