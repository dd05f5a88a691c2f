"""The core loop on a model that reads its KV through the block tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.runtime.kv.kv_blocks import blocks_needed
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.speculator import Speculator
from tests.runtime.support.toy import VOCAB, ToyExecutable, generate_naively, toy_spec

GREEDY = SamplingParams(temperature=0, max_tokens=8)
SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def tight_plan(spec: StepInterface, budget: int, block_size: int, spare: int = 0) -> KVPlan:
    """Pools that hold one longest request and ``spare`` blocks more."""
    blocks = tuple(
        blocks_needed(spec.max_context, budget, group.window, block_size) + spare
        for group in spec.groups
    )
    return KVPlan(block_size, blocks, 0, spec.max_context)


def make_core(
    spec: StepInterface, *, budget: int = 16, block_size: int = 4, spare: int = 20
) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(spec)
    plan = tight_plan(spec, budget, block_size, spare)
    return Core(executable, plan, ServeSettings(token_budget=budget)), executable


def add(core: Core, prompt: list[int], params: SamplingParams = GREEDY, seed: int = 1) -> Request:
    return core.add(CompletionInput(np.array(prompt, np.int32), params, seed=seed))


def drain(core: Core, limit: int = 2000) -> None:
    for _ in range(limit):
        if not core.has_work:
            return
        core.step()
        core.scheduler.check_integrity()
    raise AssertionError(f"not done after {limit} steps")


def test_prefill_in_chunks_equals_the_oracle() -> None:
    core, executable = make_core(toy_spec((0, 5)), budget=4)
    prompt = [int(t) for t in np.random.default_rng(0).integers(0, VOCAB, 30)]
    request = add(core, prompt)
    drain(core)
    assert request.output.tolist() == generate_naively(executable.model, prompt, 8)
    assert [len(batch.tokens) for batch in executable.batches[:8]] == [4, 4, 4, 4, 4, 4, 4, 2]


def test_decode_goes_on_while_a_long_prompt_is_read() -> None:
    core, executable = make_core(toy_spec(), budget=4)
    first = add(core, [1, 2])
    core.step()
    add(core, [3] * 30)
    core.step()
    core.step()
    assert first.num_output == 3, "the running request gets its row in every step"
    assert [len(batch.tokens) for batch in executable.batches] == [2, 4, 4]


def test_windowed_groups_hold_no_more_than_their_window() -> None:
    spec = toy_spec((0, 4))
    core, _ = make_core(spec, budget=2, block_size=2)
    request = add(core, [1] * 20, SamplingParams(temperature=0, max_tokens=40))
    while core.has_work:
        core.step()
        held = len(request.tables.held(1))
        assert held <= blocks_needed(64, 2, 4, 2)
    assert request.finish_reason == "length"


def test_preemption_recomputes_and_the_output_stays() -> None:
    spec = toy_spec((0, 6))
    core, executable = make_core(spec, spare=0)
    prompts = [[i, i + 1, i + 2] for i in range(6)]
    params = SamplingParams(temperature=0, max_tokens=40)
    requests = [add(core, prompt, params) for prompt in prompts]
    drain(core)
    assert core.metrics().preemptions > 0
    assert core.metrics().preemptions == sum(r.metrics.preemptions for r in requests)
    assert requests[0].metrics.preemptions == 0, "the oldest always advances"
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output.tolist() == generate_naively(executable.model, prompt, 40)


def test_end_tokens_stop_tokens_and_lengths() -> None:
    core, executable = make_core(toy_spec())
    whole = generate_naively(executable.model, [1, 2, 3], 8)
    end = whole[3]
    cut = whole[: whole.index(end) + 1]
    stopping = SamplingParams(temperature=0, max_tokens=8, stop_token_ids=[end])
    stopped = add(core, [1, 2, 3], stopping)
    long = add(core, [1] * 60, SamplingParams(temperature=0, max_tokens=100))
    drain(core)
    assert (stopped.finish_reason, stopped.output.tolist()) == ("stop", cut)
    assert (long.finish_reason, long.num_output) == ("length", 4)
    assert core.metrics().finished == {"stop": 1, "length": 1}

    spec = toy_spec()
    ending = Core(
        executable, tight_plan(spec, 16, 4), ServeSettings(token_budget=16), eos_token_ids=[end]
    )
    with_end = add(ending, [1, 2, 3])
    ignoring = add(ending, [1, 2, 3], SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    drain(ending)
    assert (with_end.finish_reason, with_end.output.tolist()) == ("stop", cut)
    assert (ignoring.finish_reason, ignoring.output.tolist()) == ("length", whole)


def test_cancelling_frees_the_blocks_and_twice_has_no_effect() -> None:
    core, _ = make_core(toy_spec((0, 5)))
    request, other = add(core, [1] * 10), add(core, [2] * 10)
    core.step()
    update = core.cancel(request)
    assert update is not None
    assert update.delta.finish_reason == "cancelled"
    assert core.cancel(request) is None
    core.scheduler.check_integrity()
    drain(core)
    assert other.finish_reason == "length"
    assert core.metrics().free_blocks == core.metrics().total_blocks


class PoisonedExecutable(ToyExecutable):
    """Logits of rows that read token 7 are NaN."""

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        logits[batch.tokens[batch.logit_rows] == 7] = np.nan
        return logits


@pytest.mark.parametrize("temperature", [0, 1])
def test_nan_logits_end_that_request_alone(temperature: float) -> None:
    executable = PoisonedExecutable(toy_spec())
    core = Core(executable, tight_plan(executable.spec, 16, 4, 9), ServeSettings(token_budget=16))
    params = SamplingParams(temperature=temperature, max_tokens=3, logit_bias={7: -np.inf})
    broken, sound = add(core, [1, 7], params), add(core, [1, 2], params)
    drain(core)
    assert (broken.finish_reason, broken.num_output) == ("error", 0)
    assert (sound.finish_reason, sound.num_output) == ("length", 3)
    assert str(broken.completion().error) == (
        "output token 0: the model's logits hold a NaN "
        "(the weights or the engine are broken for this input)"
    )


def test_times_are_recorded_in_order() -> None:
    ticks = iter(range(10_000))
    executable = ToyExecutable(toy_spec())
    plan = tight_plan(executable.spec, 16, 4)
    core = Core(executable, plan, ServeSettings(token_budget=16), clock=lambda: float(next(ticks)))
    request = add(core, [1, 2, 3])
    drain(core)
    metrics = request.metrics
    assert metrics.scheduled_s is not None
    assert metrics.finished_s is not None
    times = [metrics.arrived_s, metrics.scheduled_s, *metrics.token_times_s, metrics.finished_s]
    assert times == sorted(times)
    assert len(metrics.itl_s) == 7
    assert metrics.ttft_s is not None
    assert metrics.tpot_s is not None
    assert metrics.e2e_s == metrics.finished_s - metrics.arrived_s


def test_a_second_completion_is_scheduled_with_the_first() -> None:
    ticks = iter(range(10_000))
    executable = ToyExecutable(toy_spec())
    plan = tight_plan(executable.spec, 16, 4, spare=20)
    core = Core(executable, plan, ServeSettings(token_budget=16), clock=lambda: float(next(ticks)))
    given = [
        CompletionInput(np.array([1, 2, 3], np.int32), GREEDY, seed=1, index=i) for i in (0, 1)
    ]
    first = core.add(given[0])
    second = core.add(given[1], first)
    drain(core)
    assert second.metrics.scheduled_s == first.metrics.scheduled_s is not None
    assert second.output.tolist() == first.output.tolist()


requests = st.lists(
    st.tuples(
        st.one_of(  # prompt; those of few tokens share prefixes
            st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24),
            st.lists(st.integers(0, 1), min_size=1, max_size=24),
        ),
        st.integers(1, 12),  # max_tokens
        st.integers(0, 12),  # arrives at this step
        st.one_of(st.none(), st.integers(0, 20)),  # cancelled at this step
    ),
    min_size=1,
    max_size=8,
)


@SETTINGS
@given(
    requests=requests,
    windows=st.sampled_from([(0,), (0, 5), (3, 9), (0, 1)]),
    budget=st.integers(1, 16),
    block_size=st.sampled_from([2, 4, 8]),
    spare=st.integers(0, 6),
)
def test_any_traffic_gives_what_each_request_gets_alone(
    requests: list[tuple[list[int], int, int, int | None]],
    windows: tuple[int, ...],
    budget: int,
    block_size: int,
    spare: int,
) -> None:
    """Random arrivals, cancellations and tiny pools: no leak at any step, everyone finishes, and
    every output is the oracle's (a prefix of it where cancelled)."""
    spec = toy_spec(windows, max_context=40)
    core, executable = make_core(spec, budget=budget, block_size=block_size, spare=spare)
    live: dict[int, Request] = {}
    for step in range(1500):
        for number, (prompt, count, arrives, cancelled) in enumerate(requests):
            if arrives == step:
                params = SamplingParams(temperature=0, max_tokens=count)
                live[number] = add(core, prompt, params)
            if cancelled is not None and cancelled == step and number in live:
                core.cancel(live[number])
        if core.has_work:
            core.step()
        core.scheduler.check_integrity()
        if step > 20 and not core.has_work:
            break
    assert not core.has_work
    assert core.metrics().free_blocks == core.metrics().total_blocks
    for number, request in live.items():
        prompt, count, _, _ = requests[number]
        expected = generate_naively(executable.model, prompt, count)
        if request.finish_reason == "cancelled":
            assert request.output.tolist() == expected[: request.num_output]
        else:
            assert request.output.tolist() == expected


@SETTINGS
@given(
    mates=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10), max_size=5),
    seed=st.integers(0, 2**64 - 1),
    budget=st.integers(2, 16),
)
def test_seeded_tokens_do_not_depend_on_batch_mates(
    mates: list[list[int]], seed: int, budget: int
) -> None:
    params = SamplingParams(temperature=1.3, top_p=0.9, max_tokens=10, seed=seed)
    alone, _ = make_core(toy_spec())
    expected = add(alone, [3, 1, 4], params, seed)
    drain(alone)
    core, _ = make_core(toy_spec(), budget=budget, spare=1)
    for number, mate in enumerate(mates):
        add(core, mate, SamplingParams(temperature=0.8, top_k=5, max_tokens=10), seed=number)
    request = add(core, [3, 1, 4], params, seed)
    drain(core)
    assert request.output.tolist() == expected.output.tolist()


def test_no_more_sequences_are_served_at_once_than_asked_for() -> None:
    core = Core(
        ToyExecutable(toy_spec()),
        KVPlan(4, (60,), 0, 64),
        ServeSettings(token_budget=16, max_sequences=2),
    )
    for _ in range(5):
        core.add(
            CompletionInput(np.arange(3, dtype=np.int32), SamplingParams(max_tokens=4), seed=0)
        )
    most = 0
    while core.has_work:
        core.step()
        most = max(most, core.scheduler.num_running)
    assert most == 2


def test_requests_are_listed_until_they_end_and_the_engine_is_closed_with_the_core() -> None:
    class Closable(ToyExecutable):
        closed = False

        def close(self) -> None:
            self.closed = True

    executable = Closable(toy_spec())
    core = Core(executable, KVPlan(4, (8,), 0, 32), ServeSettings())
    params = SamplingParams(temperature=0, max_tokens=2)
    added = [
        core.add(CompletionInput(np.array([1, token], np.int32), params, seed=0))
        for token in (2, 3)
    ]
    assert list(core.requests()) == added
    while core.has_work:
        core.step()
    assert list(core.requests()) == []
    assert not executable.closed
    core.close()
    assert executable.closed


def test_what_drafts_is_told_of_the_rows_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """An EAGLE model reads the hidden states of all of them."""
    spec, told, speculator = toy_spec(max_context=64), list[int](), Speculator([])
    executable = ToyExecutable(spec)
    plan = tight_plan(spec, 16, 4, 20)
    core = Core(executable, plan, ServeSettings(token_budget=16), speculator=speculator)
    monkeypatch.setattr(
        speculator, "note_step", lambda chunks: told.append(sum(one.rows for one in chunks))
    )
    add(core, [1, 2, 3], SamplingParams(temperature=0, max_tokens=3))
    drain(core)
    assert told == [len(batch.tokens) for batch in executable.batches] == [3, 1, 1]
