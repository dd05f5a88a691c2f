"""Drafts on the target's own keys and values: plain decoding's text, whatever the draft writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.shared_kv import SharedKVDraft
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.proposer import DraftRequest
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.support.toy import VOCAB, ToyExecutable, toy_spec
from tests.runtime.support.traffic import (
    Arrival,
    add,
    alone,
    arrivals,
    drain,
    prompts,
    serve_with_cancels,
    tiny_plan,
    traffic_settings,
)

PROMPT = [int(t) for t in np.random.default_rng(2).integers(0, VOCAB, 11)]
GREEDY = SamplingParams(temperature=0, max_tokens=21)


def spec_of(windows: tuple[int, ...] = (0,)) -> StepInterface:
    return toy_spec(windows, max_logit_rows=20)


def draft_of(target: ToyExecutable, layers: tuple[int, ...], noise: float) -> ToyExecutable:
    """Some layers of the target with noise on the embedding: 0 and all layers always agree."""
    windows = tuple(target.model.windows[layer] for layer in layers)
    spec = structs.replace(toy_spec(windows, max_rows=12, max_sequences=6), shared_kv=layers)
    draft = ToyExecutable(spec)
    rng = np.random.default_rng(5)
    embedding = target.model.embedding
    noisy = embedding + noise * rng.normal(size=embedding.shape)
    qkv = target.model.qkv[list(layers)]
    draft.model = replace(target.model, embedding=noisy, qkv=qkv, windows=windows)
    return draft


def made(
    windows: tuple[int, ...] = (0,),
    layers: tuple[int, ...] | None = None,
    *,
    noise: float = 0.0,
    drafts: int = 4,
    budget: int = 16,
    spare: int = 40,
    prefix_cache: bool = True,
    plan: KVPlan | None = None,
) -> tuple[Core, ToyExecutable, ToyExecutable]:
    """A core with a draft on its pools, its engine, and that of the draft."""
    target = ToyExecutable(spec_of(windows))
    own = draft_of(target, tuple(range(len(windows))) if layers is None else layers, noise)
    plan = plan or tiny_plan(target.spec, budget, spare)
    model = SharedKVDraft(own, target, plan, token_budget=budget)
    source = DraftSource(model, Fixed(drafts), attach=model.attach, release=model.close)
    settings = ServeSettings(token_budget=budget, prefix_cache=prefix_cache)
    core = Core(target, plan, settings, speculator=Speculator([source]))
    return core, target, own


def rows_of(executable: ToyExecutable) -> list[list[int]]:
    return [np.diff(batch.query_starts).tolist() for batch in executable.batches]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("windows", [(0,), (0, 5), (3, 9)])
def test_it_reads_no_prompt_and_computes_each_draft_once(
    windows: tuple[int, ...], temperature: float
) -> None:
    params = replace(GREEDY, temperature=temperature)
    core, target, own = made(windows)
    request = add(core, PROMPT, params)
    drain(core)
    assert request.output.tolist() == alone(spec_of(windows), PROMPT, params).output.tolist()
    assert request.metrics.accepted_tokens == request.metrics.drafted_tokens == 16
    assert rows_of(target) == [[11]] + [[5]] * 4
    assert rows_of(own) == [[1]] * 16


def test_of_some_layers_the_pools_of_these_are_read() -> None:
    core, target, own = made((7, 0, 5), (2,), noise=0.3)
    request = add(core, PROMPT, GREEDY)
    core.step()
    tables = [table.tolist() for table in request.tables.blocks]
    core.step()
    assert own.keys[0] is target.keys[2]
    assert own.batches[0].block_tables.tolist() == [[tables[2]]]
    assert tables[2] != tables[1], "the windows are not released alike"
    drain(core)
    assert request.output.tolist() == alone(spec_of((7, 0, 5)), PROMPT, GREEDY).output.tolist()
    assert request.metrics.drafted_tokens > request.metrics.accepted_tokens


def test_what_a_grammar_forces_is_computed_before_the_first_draft() -> None:
    core, _, own = made(drafts=2)
    request = add(core, PROMPT, GREEDY)
    core.step()
    request.append(5)  # as a grammar does: two tokens are pending
    core.step()
    assert rows_of(own) == [[2], [1]]
    assert own.batches[0].positions.tolist() == [11, 12]


def test_a_preempted_request_is_drafted_for_again_once_it_is_computed() -> None:
    core, _, _ = made(drafts=3, spare=2, prefix_cache=False)
    requests = [add(core, PROMPT[: 9 + i], replace(GREEDY, max_tokens=30)) for i in range(3)]
    preempted = 0
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
        preempted += len(core.scheduler.preempted)
    assert preempted, "the pools are too small for all"
    for request in requests:
        prompt = request.tokens[: request.num_prompt].tolist()
        expected = alone(spec_of(), prompt, replace(GREEDY, max_tokens=30))
        assert request.output.tolist() == expected.output.tolist()
        assert request.metrics.accepted_tokens > 0


def test_without_room_nothing_is_drafted() -> None:
    plan = KVPlan(4, (2,), 0, 8)
    core, _, own = made(drafts=5, plan=plan, prefix_cache=False)
    request = add(core, PROMPT[:4], GREEDY)
    drain(core)
    assert request.num_tokens == 8
    assert all(batch.positions.max() < 8 for batch in own.batches)


def test_texts_are_forgotten_and_the_engine_is_released() -> None:
    target = ToyExecutable(spec_of())
    own = draft_of(target, (0,), 0.0)
    plan = tiny_plan(target.spec, 16, 4)
    model = SharedKVDraft(own, target, plan, token_budget=16)
    source = DraftSource(model, Fixed(2), attach=model.attach, release=model.close)
    core = Core(target, plan, speculator=Speculator([source]))
    request = add(core, PROMPT, GREEDY)
    assert model.pending(request) == 11
    core.step()
    assert model.pending(request) == 1
    core.step()
    assert model._texts
    core.cancel(request)
    assert not model._texts
    core.scheduler.check_integrity()
    core.close()
    assert own.closed


def test_engines_that_cannot_share_are_refused() -> None:
    target = ToyExecutable(spec_of())
    plan = tiny_plan(target.spec, 16, 4)
    with pytest.raises(ValueError, match="cannot share"):
        SharedKVDraft(ToyExecutable(spec_of()), target, plan, token_budget=16)
    model = SharedKVDraft(draft_of(target, (0,), 0.0), target, plan, token_budget=16)
    request = Request(
        0,
        CompletionInput(np.array(PROMPT, np.int32), GREEDY, seed=0),
        max_length=30,
        tables=Core(target, plan)._blocks.new_tables(),
        metrics=add(Core(target, plan), PROMPT, GREEDY).metrics,
    )
    with pytest.raises(RuntimeError, match="was not attached"):
        model.propose([DraftRequest(request, 1)])


@traffic_settings()
@given(
    arriving=arrivals(prompts(24), most=6),
    cancelled=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 16)), max_size=3),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    some=st.booleans(),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    noise=st.sampled_from([0.0, 0.3, 5.0]),
    drafts=st.integers(1, 7),
    prefix_cache=st.booleans(),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    cancelled: list[tuple[int, int]],
    windows: tuple[int, ...],
    some: bool,
    budget: int,
    spare: int,
    noise: float,
    drafts: int,
    prefix_cache: bool,
) -> None:
    """Batch mates, chunks, prefix hits, preemption, cancellation, tiny pools."""
    layers = (len(windows) - 1,) if some else None
    core, _, _ = made(
        windows,
        layers,
        noise=noise,
        drafts=drafts,
        budget=budget,
        spare=spare,
        prefix_cache=prefix_cache,
    )
    serve_with_cancels(core, arriving, cancelled)
