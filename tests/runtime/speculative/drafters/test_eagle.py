"""Drafts by the target's hidden states: which states each row reads, and plain decoding's text."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from optc.errors import InputError
from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.eagle import EagleModel
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.support.toy import (
    VOCAB,
    WIDTH,
    ToyExecutable,
    ToyModel,
    naive_hidden,
    toy_spec,
)
from tests.runtime.support.traffic import (
    Arrival,
    add,
    alone,
    arrivals,
    drain,
    prompts,
    serve,
    tiny_plan,
    traffic_settings,
)

PROMPT = [int(t) for t in np.random.default_rng(2).integers(0, VOCAB, 11)]
GREEDY = SamplingParams(temperature=0, max_tokens=21)


def spec_of(windows: tuple[int, ...] = (0,)) -> StepInterface:
    return structs.replace(toy_spec(windows, max_logit_rows=20), hidden_size=WIDTH)


class LayerExecutable(ToyExecutable):
    """An ideal layer: its guess of a hidden state is the target's, and so are its logits but for
    noise. It finds the tokens before each row in its pools, and notes the features of the row."""

    def __init__(self, noise: float = 0.0) -> None:
        spec = toy_spec((0,), max_rows=12, max_sequences=6)
        super().__init__(
            structs.replace(spec, features=True, hidden_size=WIDTH, hidden_rows="logits")
        )
        self.target = ToyModel.seeded(spec_of())
        rng = np.random.default_rng(5)
        weights = self.target.embedding
        noisy = weights + noise * rng.normal(size=weights.shape)
        self.noisy = replace(self.target, embedding=noisy)
        self.tokens: dict[int, int] = {}
        self.rows: list[tuple[tuple[int, ...], Float32]] = []

    def step(self, batch: StepBatch) -> Float32:
        assert batch.features is not None
        assert batch.features.shape == (len(batch.tokens), WIDTH)
        self.check(batch)
        self.batches.append(batch)
        for slot, token in zip(batch.slot_mapping[0].tolist(), batch.tokens.tolist(), strict=True):
            self.tokens[slot] = token
        before = [self.text(batch, row) for row in range(len(batch.tokens))]
        self.rows += list(zip(before, batch.features, strict=True))
        wanted = [before[row] for row in batch.logit_rows]
        self.hidden = np.array([hidden_of(self.target, text) for text in wanted], np.float32)
        return np.array([self.noisy.logits(state) for state in self.hidden])

    def text(self, batch: StepBatch, row: int) -> tuple[int, ...]:
        """The tokens up to a row."""
        sequence = int(np.searchsorted(batch.query_starts, row, side="right")) - 1
        end = int(batch.kv_lengths[0, sequence]) - int(batch.query_starts[sequence + 1]) + row + 1
        size, table = self.block_size, batch.block_tables[0, sequence]
        return tuple(self.tokens[int(table[i // size]) * size + i % size] for i in range(end))

    @property
    def unknown(self) -> list[tuple[int, ...]]:
        """Texts of the rows that read zeros; all others must have read the target's state of the
        token before."""
        found = []
        for text, features in self.rows:
            if not features.any():
                found.append(text)
            else:
                want = hidden_of(self.target, text[:-1])
                np.testing.assert_allclose(features, want, atol=1e-6)
        return found


@cache
def _hidden(text: tuple[int, ...], model: int) -> Float32:
    return naive_hidden(_MODELS[model], list(text)).astype(np.float32)


_MODELS: dict[int, ToyModel] = {}


def hidden_of(model: ToyModel, text: tuple[int, ...]) -> Float32:
    """The model's last hidden state of the last token."""
    _MODELS[id(model)] = model
    return _hidden(text, id(model))


def eagle_core(
    *,
    noise: float = 0.0,
    drafts: int = 4,
    budget: int = 16,
    spare: int = 60,
    draft_budget: int = 12,
    draft_spare: int = 60,
    prefix_cache: bool = True,
) -> tuple[Core, EagleModel, LayerExecutable]:
    """A core whose target is drafted for by a layer."""
    target, layer = ToyExecutable(spec_of()), LayerExecutable(noise)
    model = EagleModel(
        layer,
        tiny_plan(layer.spec, draft_budget, draft_spare),
        target,
        token_budget=draft_budget,
        prefix_cache=prefix_cache,
    )
    source = DraftSource(model, Fixed(drafts), pending=model.pending, note_step=model.note_step)
    core = Core(
        target,
        tiny_plan(target.spec, budget, spare),
        ServeSettings(token_budget=budget, prefix_cache=prefix_cache),
        speculator=Speculator([source]),
    )
    return core, model, layer


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_row_reads_the_state_of_the_token_before(temperature: float) -> None:
    params = replace(GREEDY, temperature=temperature)
    core, model, layer = eagle_core()
    request = add(core, PROMPT, params)
    drain(core, model.check_integrity)
    assert request.output.tolist() == alone(spec_of(), PROMPT, params).output.tolist()
    assert request.metrics.accepted_tokens == request.metrics.drafted_tokens == 16
    assert layer.unknown == [(PROMPT[0],)], "before the first token there is none"
    assert not model._states, "nothing is kept of a request that ended"


def test_rows_computed_with_guesses_are_computed_again() -> None:
    core, model, layer = eagle_core(drafts=3)
    add(core, PROMPT, replace(GREEDY, max_tokens=9))
    drain(core, model.check_integrity)
    rows = [np.diff(batch.query_starts).tolist() for batch in layer.batches]
    # The prompt and the first token; then the three drafts that held, and the bonus.
    assert rows == [[12], [1], [1], [4], [1], [1]]


def test_rejected_drafts_leave_no_state_behind() -> None:
    core, model, layer = eagle_core(noise=0.4)
    request = add(core, PROMPT, replace(GREEDY, max_tokens=30))
    drain(core, model.check_integrity)
    plain = alone(spec_of(), PROMPT, replace(GREEDY, max_tokens=30))
    assert request.output.tolist() == plain.output.tolist()
    assert 0 < core.metrics().accepted_tokens < core.metrics().drafted_tokens
    assert layer.unknown == [(PROMPT[0],)]


def test_prompts_in_chunks_of_both_engines() -> None:
    core, model, layer = eagle_core(budget=5, draft_budget=7)
    texts = [[1, 2, 3] * 7, PROMPT]
    live = [add(core, text, GREEDY) for text in texts]
    drain(core, model.check_integrity)
    for request, text in zip(live, texts, strict=True):
        assert request.output.tolist() == alone(spec_of(), text, GREEDY).output.tolist()
    assert core.metrics().accepted_tokens == core.metrics().drafted_tokens > 16
    assert sorted(layer.unknown) == sorted((text[0],) for text in texts)


def test_behind_a_cached_prefix_the_first_state_is_unknown() -> None:
    """The target does not compute what it finds in its cache, nor does the layer."""
    core, model, layer = eagle_core()
    add(core, PROMPT, GREEDY)
    drain(core, model.check_integrity)
    layer.rows.clear()
    second = add(core, [*PROMPT[:9], 1, 2], GREEDY)
    drain(core, model.check_integrity)
    plain = alone(spec_of(), [*PROMPT[:9], 1, 2], GREEDY)
    assert second.output.tolist() == plain.output.tolist()
    assert second.metrics.cached_tokens == 8
    assert layer.unknown == [tuple(PROMPT[:9])]
    assert second.metrics.drafted_tokens > 0


def test_what_the_layer_has_forgotten_is_computed_without_states() -> None:
    core, model, layer = eagle_core()
    add(core, PROMPT, GREEDY)
    drain(core, model.check_integrity)
    prefixes = model._blocks.prefixes
    assert prefixes is not None
    prefixes.evict(0, model._blocks.pools[0].num_cached)
    layer.rows.clear()
    second = add(core, PROMPT, GREEDY)
    drain(core, model.check_integrity)
    assert second.output.tolist() == alone(spec_of(), PROMPT, GREEDY).output.tolist()
    assert layer.unknown == [tuple(PROMPT[: i + 1]) for i in range(9)]


def test_completions_of_one_prompt_share_its_states() -> None:
    params = replace(GREEDY, temperature=0.9, max_tokens=8)
    core, model, layer = eagle_core(drafts=2, prefix_cache=False)
    prompt = np.array(PROMPT, np.int32)
    leader = core.add(CompletionInput(prompt, params, seed=3))
    core.add(CompletionInput(prompt, params, seed=3, index=1), leader)
    drain(core, model.check_integrity)
    assert core.metrics().forked == 1
    assert layer.unknown == [(PROMPT[0],)] * 2


def test_of_a_tree_only_the_known_tokens_states_are_kept() -> None:
    _, model, _ = eagle_core()
    target = model._target
    assert isinstance(target, ToyExecutable)
    core, _, _ = eagle_core()
    request = add(core, PROMPT, GREEDY)
    target.hidden = np.arange(1, 14 * WIDTH + 1, dtype=np.float32).reshape(14, WIDTH)
    request.draft([5, 6, 7], [-1, -1, 0])
    model.note_step([Chunk[Request](request, 0, 14, 3)])
    states = model._states[request.id]
    assert states[:11].tolist() == target.hidden[:11].tolist()
    assert not states[11:].any()


@pytest.mark.parametrize(("mine", "given"), [(WIDTH, 0), (WIDTH, 2 * WIDTH)])
def test_a_layer_for_other_hidden_states_is_refused(mine: int, given: int) -> None:
    layer = LayerExecutable()
    target = ToyExecutable(structs.replace(spec_of(), hidden_size=given))
    with pytest.raises(InputError) as caught:
        EagleModel(layer, tiny_plan(layer.spec, 12, 60), target, token_budget=12)
    assert str(caught.value) == (
        f"speculate: the layer reads hidden states of {mine} values, the target gives {given} "
        "(compile the artifact again with --eagle FOLDER)"
    )


def test_a_layer_that_gives_states_of_all_rows_is_refused() -> None:
    layer = LayerExecutable()
    layer.spec = structs.replace(layer.spec, hidden_rows="all")
    with pytest.raises(InputError) as caught:
        EagleModel(layer, tiny_plan(layer.spec, 12, 60), ToyExecutable(spec_of()), token_budget=12)
    assert str(caught.value) == (
        "speculate: the layer's engine gives no guesses of the rows whose logits are wanted "
        "(compile the artifact again with --eagle FOLDER)"
    )


@traffic_settings(max_examples=20)
@given(
    arriving=arrivals(prompts(20), most=4, tokens=12),
    budget=st.integers(2, 16),
    spare=st.integers(0, 4),
    draft_budget=st.integers(1, 12),
    draft_spare=st.integers(0, 4),
    noise=st.sampled_from([0.0, 0.3]),
    drafts=st.integers(1, 5),
    prefix_cache=st.booleans(),
)
def test_any_traffic_gives_what_plain_decoding_gives(
    arriving: list[Arrival],
    budget: int,
    spare: int,
    draft_budget: int,
    draft_spare: int,
    noise: float,
    drafts: int,
    prefix_cache: bool,
) -> None:
    """Batch mates, chunks, prefix hits, preemption, tiny pools on both sides."""
    core, model, layer = eagle_core(
        noise=noise,
        drafts=drafts,
        budget=budget,
        spare=spare,
        draft_budget=draft_budget,
        draft_spare=draft_spare,
        prefix_cache=prefix_cache,
    )
    live = serve(core, arriving, model.check_integrity)
    for request, each in zip(live, arriving, strict=True):
        plain = alone(spec_of(), each.prompt, each.params)
        assert request.output.tolist() == plain.output.tolist()
    assert layer.unknown is not None, "all others read the state of the token before"
    assert not model._states
