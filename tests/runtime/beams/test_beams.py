"""Beam search through the core against full recomputation, on pools large and tiny."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.beams.search import EarlyStopping
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.kv.kv_blocks import blocks_needed
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from tests.runtime.beams.naive_beams import search_naively
from tests.runtime.support.toy import ToyExecutable, generate_naively, naive_logits, toy_spec


def make_core(
    windows: tuple[int, ...] = (0,),
    *,
    budget: int = 16,
    spare: int = 40,
    prefix_cache: bool = True,
    eos: tuple[int, ...] = (),
) -> tuple[Core, ToyExecutable]:
    spec = toy_spec(windows, max_context=40)
    executable = ToyExecutable(spec)
    blocks = tuple(blocks_needed(40, budget, window, 4) + spare for window in windows)
    core = Core(
        executable,
        KVPlan(4, blocks, 0, 40),
        ServeSettings(token_budget=budget, prefix_cache=prefix_cache),
        eos_token_ids=eos,
    )
    return core, executable


def add(core: Core, prompt: list[int], params: SamplingParams) -> list[Request]:
    tokens = np.array(prompt, np.int32)
    leader = core.add(CompletionInput(tokens, params, seed=0))
    return [leader] + [
        core.add(CompletionInput(tokens, params, seed=0, index=index), leader)
        for index in range(1, params.completions)
    ]


def drain(core: Core) -> None:
    for _ in range(4000):
        if not core.has_work:
            return
        core.step()
        core.scheduler.check_integrity()
    raise AssertionError("not done")


def results(beams: list[Request]) -> list[tuple[list[int], float]]:
    done = [beam.completion() for beam in beams]
    return [(list(each.token_ids), each.cumulative_logprob or 0.0) for each in done]


def assert_equal(mine: list[tuple[list[int], float]], plain: list[tuple[list[int], float]]) -> None:
    assert [tokens for tokens, _ in mine] == [tokens for tokens, _ in plain]
    assert [score for _, score in mine] == pytest.approx([score for _, score in plain], abs=1e-9)


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("arrives", [0, 1, 7])
@pytest.mark.parametrize("many", [{"beam_width": 8}, {"n": 8, "seed": 1}, {"n": 20, "seed": 1}])
def test_a_request_that_takes_all_places_leaves_some_to_others(
    many: dict[str, int], arrives: int, prefix_cache: bool
) -> None:
    """Eight places: those who come a little later are served beside it, and nothing changes."""
    params = SamplingParams(max_tokens=24, ignore_eos=True, **many)
    alone, executable = make_core(prefix_cache=prefix_cache)
    first = add(alone, [1, 2, 3], params)
    drain(alone)
    core, _ = make_core(prefix_cache=prefix_cache)
    assert core.scheduler.max_running == 8
    wide = add(core, [1, 2, 3], params)
    for _ in range(arrives):
        core.step()
    greedy = SamplingParams(temperature=0, max_tokens=4)
    others = [add(core, [4, number], greedy)[0] for number in range(3)]
    steps = 0
    while any(other.finish_reason is None for other in others):
        core.step()
        core.scheduler.check_integrity()
        steps += 1
    assert steps <= 4 + 3, "as though they were alone, but for the prompts"
    assert all(request.finish_reason is None for request in wide[:1])
    drain(core)
    assert [r.completion().token_ids for r in wide] == [r.completion().token_ids for r in first]
    for number, other in enumerate(others):
        assert list(other.output) == generate_naively(executable.model, [4, number], 4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    prompt=st.lists(st.integers(0, 47), min_size=1, max_size=14),
    width=st.integers(1, 5),
    max_tokens=st.integers(1, 12),
    ends=st.frozensets(st.integers(0, 47), max_size=12),
    length_penalty=st.sampled_from([0.0, 0.7, 1.0, 2.0, -1.0]),
    early_stopping=st.sampled_from([True, False, "never"]),
    windows=st.sampled_from([(0,), (0, 5), (3, 9)]),
    budget=st.integers(2, 12),
    spare=st.integers(0, 12),
    prefix_cache=st.booleans(),
    mates=st.lists(st.lists(st.integers(0, 47), min_size=1, max_size=12), max_size=3),
)
def test_any_search_equals_the_oracle(
    prompt: list[int],
    width: int,
    max_tokens: int,
    ends: frozenset[int],
    length_penalty: float,
    early_stopping: EarlyStopping,
    windows: tuple[int, ...],
    budget: int,
    spare: int,
    prefix_cache: bool,
    mates: list[list[int]],
) -> None:
    """Beside ordinary requests and other searches, on pools that hold one beam at least."""
    core, executable = make_core(windows, budget=budget, spare=spare, prefix_cache=prefix_cache)
    params = SamplingParams(
        beam_width=width,
        max_tokens=max_tokens,
        stop_token_ids=sorted(ends),
        length_penalty=length_penalty,
        early_stopping=early_stopping,
    )
    greedy = SamplingParams(temperature=0, max_tokens=9)
    others = [add(core, mate, greedy)[0] for mate in mates[:2]]
    beams = add(core, prompt, params)
    second = [add(core, mate, params) for mate in mates[2:]]
    drain(core)

    def plain(tokens: list[int]) -> list[tuple[list[int], float]]:
        return search_naively(
            lambda path: naive_logits(executable.model, path),
            tokens,
            width=width,
            max_tokens=max_tokens,
            ends=ends,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )

    assert_equal(results(beams), plain(prompt))
    for mate, other in zip(mates[2:], second, strict=True):
        assert_equal(results(other), plain(mate))
    for mate, request in zip(mates, others, strict=False):
        assert request.output.tolist() == generate_naively(executable.model, mate, 9)
    assert core.metrics().free_blocks == core.metrics().total_blocks


def test_one_beam_is_greedy() -> None:
    core, executable = make_core()
    (beam,) = add(core, [1, 2, 3], SamplingParams(beam_width=1, max_tokens=8))
    drain(core)
    assert beam.output.tolist() == generate_naively(executable.model, [1, 2, 3], 8)
    assert beam.finish_reason == "length"


def test_beams_share_full_blocks_and_copy_the_last() -> None:
    core, executable = make_core(prefix_cache=False)
    add(core, [5] * 16, SamplingParams(beam_width=4, max_tokens=6))
    core.step()
    core.step()
    total = core.metrics().total_blocks[0]
    assert total - core.metrics().free_blocks[0] == 4 + 4, "the prompt's four, and one each"
    assert len(executable.batches[0].tokens) == 16
    assert len(executable.batches[1].tokens) == 4, "one row a beam"


def test_the_models_end_tokens_end_hypotheses_unless_ignored() -> None:
    model = ToyExecutable(toy_spec(max_context=40)).model
    eos = generate_naively(model, [3], 3)[2]
    for ignore in (False, True):
        core, _ = make_core(eos=(eos,))
        params = SamplingParams(beam_width=3, max_tokens=9, ignore_eos=ignore)
        beams = add(core, [3], params)
        drain(core)
        plain = search_naively(
            lambda path: naive_logits(model, path),
            [3],
            width=3,
            max_tokens=9,
            ends=frozenset() if ignore else frozenset({eos}),
        )
        assert_equal(results(beams), plain)
        for beam in beams:
            ended = beam.output[-1] == eos and not ignore
            assert beam.finish_reason == ("stop" if ended else "length")


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_cancelled_search_gives_its_beams(steps: int) -> None:
    core, _ = make_core()
    beams = add(core, [1, 2], SamplingParams(beam_width=3, max_tokens=9))
    for _ in range(steps):
        core.step()
    updates = [core.cancel(beam) for beam in beams]
    assert all(update and update.delta.finish_reason == "cancelled" for update in updates)
    assert core.cancel(beams[0]) is None
    assert [beam.num_output for beam in beams] == [steps] * 3
    assert len({tuple(beam.output.tolist()) for beam in beams}) == (3 if steps else 1)
    assert not core.has_work
    core.scheduler.check_integrity()
    assert core.metrics().free_blocks == core.metrics().total_blocks


def test_a_search_ends_at_its_deadline() -> None:
    core, _ = make_core()
    now = [0.0]
    core._clock = lambda: now[0]
    params = SamplingParams(beam_width=2, max_tokens=9)
    leader = core.add(CompletionInput(np.array([1], np.int32), params, seed=0, deadline_s=1.0))
    core.add(
        CompletionInput(np.array([1], np.int32), params, seed=0, index=1, deadline_s=1.0), leader
    )
    core.step()
    core.step()
    now[0] = 2.0
    assert [u.delta.finish_reason for u in core.step()] == ["deadline"] * 2
    assert leader.num_output == 2
    assert not core.has_work


class PoisonedExecutable(ToyExecutable):
    """Logits of the third step and later are NaN."""

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        return logits if len(self.batches) < 3 else logits * np.float32(np.nan)


def test_nan_logits_end_the_search_with_an_error() -> None:
    executable = PoisonedExecutable(toy_spec())
    core = Core(executable, KVPlan(4, (40,), 0, 64), ServeSettings(token_budget=16))
    beams = add(core, [1, 2], SamplingParams(beam_width=2, max_tokens=9))
    drain(core)
    for beam in beams:
        assert (beam.finish_reason, beam.num_output) == ("error", 2)
        assert str(beam.completion().error).startswith(
            "output token 2: the model's logits hold a NaN"
        )
