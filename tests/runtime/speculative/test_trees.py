"""Trees of drafts: the output of plain decoding, whatever is in the tree and whatever runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.executable.executable import StepInterface
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.speculative.proposer import DraftRequest, Drafts
from tests.runtime.support.toy import VOCAB, toy_spec
from tests.runtime.support.traffic import (
    Arrival,
    alone,
    arrivals,
    drain,
    make_core,
    serve,
    traffic_settings,
)


class RandomTrees:
    """Random trees in which the true continuation, if it is known, hides at random places."""

    def __init__(self, texts: Sequence[list[int]], seed: int) -> None:
        self.texts = texts
        self.random = np.random.default_rng(seed)

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        return [self.tree(request, limit) for request, limit in wanted]

    def tree(self, request: Request, limit: int) -> Drafts:
        ahead = self.texts[request.id % len(self.texts)][request.num_tokens :]
        tokens: list[int] = []
        parents: list[int] = []
        true = {-1: 0}  # drafts on the true path, and how deep they are
        for index in range(limit):
            parent = int(self.random.integers(-1, index)) if index else -1
            if self.random.random() < 0.6:
                parent = max(true)
            depth = true.get(parent)
            token = int(self.random.integers(VOCAB))
            if depth is not None and depth < len(ahead) and self.random.random() < 0.7:
                token = ahead[depth]
            if depth is not None and depth < len(ahead) and token == ahead[depth]:
                true[index] = depth + 1
            tokens.append(token)
            parents.append(parent)
        return Drafts(tokens, parents)

    def forget(self, request: Request) -> None:
        """Nothing is kept."""


def spec_of(windows: tuple[int, ...]) -> StepInterface:
    return toy_spec(windows, max_logit_rows=20, tree=True)


@pytest.mark.parametrize("windows", [(0,), (0, 5), (0, 1), (3, 9)])
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_trees_give_the_text_of_plain_decoding(
    temperature: float, windows: tuple[int, ...]
) -> None:
    spec = spec_of(windows)
    prompt = [int(t) for t in np.random.default_rng(2).integers(0, VOCAB, 13)]
    params = SamplingParams(
        temperature=temperature, max_tokens=40, logprobs=2, repetition_penalty=1.2
    )
    expected = alone(spec, prompt, params)
    core, executable = make_core(spec, RandomTrees([expected.tokens.tolist()], 3), drafts=7)
    request = core.add(CompletionInput(np.array(prompt, np.int32), params, seed=7))
    drain(core)
    assert request.output.tolist() == expected.output.tolist()
    assert request.logprobs == expected.logprobs
    metrics = core.metrics()
    assert metrics.accepted_tokens > 15, "the true path is often in the tree"
    assert len(executable.batches) == 1 + 39 - metrics.accepted_tokens
    assert any(
        batch.tree_parent is not None and (np.diff(batch.tree_parent) != 1).any()
        for batch in executable.batches
    )
    assert metrics.free_blocks == metrics.total_blocks


@traffic_settings()
@given(
    arriving=arrivals(),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    drafts=st.integers(1, 9),
    prefix_cache=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    windows: tuple[int, ...],
    budget: int,
    spare: int,
    drafts: int,
    prefix_cache: bool,
    seed: int,
) -> None:
    """Batch mates, chunks, prefix hits, tiny pools: no leak, and token-for-token the same."""
    spec = spec_of(windows)
    wanted = [alone(spec, each.prompt, each.params) for each in arriving]
    core, _ = make_core(
        spec,
        RandomTrees([one.tokens.tolist() for one in wanted], seed),
        budget=budget,
        spare=spare,
        drafts=drafts,
        prefix_cache=prefix_cache,
    )
    live = serve(core, arriving)
    for request, expected in zip(live, wanted, strict=True):
        assert request.output.tolist() == expected.output.tolist()


def test_forked_completions_draft_each_for_itself() -> None:
    spec = spec_of((0, 5))
    params = SamplingParams(temperature=0.9, max_tokens=20)
    prompt = np.array([0, 1, 0, 1, 1], np.int32)
    texts: list[list[int]] = []
    for _ in range(2):
        proposer = RandomTrees(texts, 5) if texts else None
        core, _ = make_core(spec, proposer, drafts=7)
        leader = core.add(CompletionInput(prompt, params, seed=3))
        others = [
            core.add(CompletionInput(prompt, params, seed=3, index=i), leader) for i in (1, 2)
        ]
        drain(core)
        assert core.metrics().forked == 2
        outputs = [request.tokens.tolist() for request in (leader, *others)]
        texts = texts or outputs
    assert core.metrics().accepted_tokens > 0
    assert outputs == texts
