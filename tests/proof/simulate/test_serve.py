"""Serving in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from optc.errors import InputError
from optc.proof.bench.slo import Slo
from optc.proof.bench.summary import summarize
from optc.proof.bench.workload import Job, make_jobs, read_workload
from optc.proof.simulate.serve import simulate
from optc.runtime.settings import ServeSettings
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.toy import toy_spec

SPEC = toy_spec(max_context=512, max_rows=64, max_sequences=16, max_logit_rows=64)
EASY = ServeSettings(token_budget=64, max_sequences=16)
#: The block size is 32 tokens of 64 bytes.
BLOCK_BYTES = 32 * 64


def job(at: float, prompt: int, output: int, token: int = 0) -> Job:
    return Job(at, np.full(prompt, token, np.int32), output)


def test_latencies_follow_from_step_times() -> None:
    times = step_times(step=1.0, row=0.01)
    jobs = [job(10.0, 4, 3), job(11.0, 5, 2, token=1)]
    run = simulate(SPEC, times, jobs, EASY)
    first, second = (served.metrics for served in run.requests)
    # Steps: 4 rows from 10.00; 1 + 5 rows from 11.04; 1 + 1 rows from 12.10.
    assert first.token_times_s == pytest.approx([11.04, 12.10, 13.12])
    assert second.token_times_s == pytest.approx([12.10, 13.12])
    assert second.ttft_s == pytest.approx(1.10)
    assert run.counters.steps == 3
    assert run.seconds == pytest.approx(3.12)
    assert summarize(run, slo=Slo(ttft=1.05))["goodput"]["share"] == 0.5


def test_a_smaller_budget_cuts_prompts_and_spares_those_who_decode() -> None:
    times = step_times(step=0.1, row=0.1)
    jobs = [job(0.0, 1, 40), job(1.0, 300, 2, token=1)]
    gaps = []
    for budget in (8, 64):
        run = simulate(SPEC, times, jobs, ServeSettings(token_budget=budget, max_sequences=4))
        gaps.append(max(run.requests[0].metrics.itl_s))
    assert gaps == pytest.approx([0.1 + 0.8, 0.1 + 6.4])


def test_sequences_wait_for_their_turn() -> None:
    times = step_times(step=1.0)
    jobs = [job(0.0, 1, 4), job(0.0, 1, 4), job(0.0, 1, 4)]
    run = simulate(SPEC, times, jobs, replace(EASY, max_sequences=1))
    assert [r.metrics.ttft_s for r in run.requests] == pytest.approx([1, 5, 9])


def test_engines_that_sample_can_be_simulated() -> None:
    times, jobs = step_times(step=1.0), [job(0.0, 5, 4)]
    runs = [simulate(structs.replace(SPEC, samples=s), times, jobs, EASY) for s in (False, True)]
    assert runs[0].requests[0].metrics == runs[1].requests[0].metrics


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9])
def test_drafts_are_accepted_at_the_stated_rate(acceptance: float) -> None:
    times = step_times(step=1.0, row=0.0001)
    jobs = [job(0.0, 4, 500) for _ in range(4)]
    run = simulate(
        SPEC,
        times,
        jobs,
        replace(EASY, speculate="ngram", max_drafted=4),
        acceptance=acceptance,
        check=True,
    )
    # Of k drafts, those after a rejected one are not accepted: the expected share for k = 4.
    expected = sum(acceptance**k for k in range(1, 5)) / 4
    assert run.counters.drafted_tokens
    if acceptance:
        assert run.counters.acceptance_rate == pytest.approx(expected, abs=0.06)
        assert run.counters.tokens_per_pass == pytest.approx(1 + 4 * expected, rel=0.1)
    else:
        assert run.counters.accepted_tokens == 0
    assert [served.output_tokens for served in run.requests] == [500] * 4


def test_common_prefixes_are_computed_once() -> None:
    spec = "poisson:rate=0.05,requests=30,prompt=200,output=2,prefix=192"
    jobs, _ = make_jobs(read_workload(spec), 1000, 512)
    times = step_times(row=0.01)
    with_cache = simulate(SPEC, times, jobs, EASY)
    without = simulate(SPEC, times, jobs, replace(EASY, prefix_cache=False))
    assert with_cache.counters.prefix_hit_tokens == 29 * 192
    ttft = [summarize(run)["ttft_ms"]["p50"] for run in (with_cache, without)]
    assert ttft == pytest.approx([80, 2000], rel=0.01)


def test_the_warmup_is_served_and_not_counted() -> None:
    jobs = [job(float(i), 3, 2) for i in range(10)]
    run = simulate(SPEC, step_times(step=0.01), jobs, EASY, warmup=4)
    assert len(run.requests) == 6
    assert run.counters.output_tokens == 12
    assert run.seconds == pytest.approx(5.02)


def test_what_no_memory_holds_fails_and_the_others_are_served() -> None:
    small = replace(EASY, kv_memory=4 * BLOCK_BYTES)
    jobs = [job(0.0, 300, 2), job(0.0, 20, 2)]
    run = simulate(SPEC, step_times(step=1.0), jobs, small)
    assert (len(run.requests), run.failed) == (1, 1)
    with pytest.raises(InputError, match="no request fits the KV memory, which holds 128 tokens"):
        simulate(SPEC, step_times(step=1.0), jobs[:1], small)


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_requests_end_and_give_their_blocks_back(count: int) -> None:
    """On pools so small that requests are preempted; `simulate` checks the blocks at the end."""
    lengths = "prompt=lognormal(20,1),output=exponential(6),prefix=8"
    spec = f"poisson:rate=900,requests={count},{lengths}"
    arrivals = read_workload(spec)
    jobs, _ = make_jobs(arrivals, 1000, 256)
    tight = replace(EASY, kv_memory=16 * BLOCK_BYTES)
    times = step_times(step=1e-3, row=1e-4)
    run = simulate(SPEC, times, jobs, tight)
    assert [r.output_tokens for r in run.requests] == [j.output_tokens for j in jobs]
    assert run.counters.finished == {"length": count}
    assert run.counters.preemptions > 0
    assert all(0 < (r.metrics.ttft_s or 0) <= (r.metrics.e2e_s or 0) for r in run.requests)


requests = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 90), st.integers(1, 12)), min_size=1, max_size=25
)


@settings(deadline=None, max_examples=40)
@given(
    requests,
    st.integers(2, 64),
    st.integers(1, 16),
    st.integers(0, 3),
    st.none() | st.integers(1, 64),
    st.integers(4, 20),
    st.sampled_from([(0,), (0, 40)]),
)
def test_any_traffic_ends_with_all_blocks_where_they_belong(
    wanted: list[tuple[float, int, int]],
    budget: int,
    sequences: int,
    drafted: int,
    chunk: int | None,
    blocks: int,
    windows: tuple[int, ...],
) -> None:
    jobs = [job(at, p, o, token=i % 3) for i, (at, p, o) in enumerate(sorted(wanted))]
    spec = toy_spec(windows, max_context=128, max_rows=64, max_sequences=16)
    memory = blocks * BLOCK_BYTES * len(windows)
    run = simulate(
        spec,
        step_times(step=0.5, row=0.01),
        jobs,
        ServeSettings(
            token_budget=budget,
            max_sequences=sequences,
            prefill_chunk=chunk,
            speculate="ngram" if drafted else None,
            max_drafted=drafted or 1,
            kv_memory=memory,
        ),
        acceptance=0.6,
        check=True,
    )
    assert [r.output_tokens for r in run.requests] == [j.output_tokens for j in jobs]
