"""Counters begin at zero."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scheduling.chunks import Chunk


@pytest.mark.parametrize("fresh", [EngineMetrics(), RequestMetrics(10.0)])
def test_counters_begin_at_zero(fresh: Any) -> None:
    values = {f.name: getattr(fresh, f.name) for f in fields(fresh)}
    counted = {name: value for name, value in values.items() if type(value) is int}
    assert counted
    assert set(counted.values()) == {0}


def test_shares_of_nothing_are_zero() -> None:
    fresh = EngineMetrics()
    assert (fresh.kv_use_mean, fresh.prefix_hit_rate) == (0, 0)
    assert (fresh.acceptance_rate, fresh.tokens_per_pass) == (None, None)


def test_what_was_counted_since_is_the_difference() -> None:
    before = EngineMetrics(steps=2, prompt_tokens=5, finished={"stop": 1, "length": 1}, running=3)
    after = EngineMetrics(steps=6, prompt_tokens=9, finished={"stop": 3, "length": 1}, running=1)
    since = after.since(before)
    assert (since.steps, since.prompt_tokens, since.running) == (4, 4, 1)
    assert since.finished == {"stop": 2}


def test_shares_are_of_what_was_counted() -> None:
    metrics = EngineMetrics(
        steps=4, kv_use_sum=1.0, prefix_hit_tokens=3, prefix_lookup_tokens=12, output_tokens=6
    )
    metrics.drafted_tokens, metrics.accepted_tokens = 8, 2
    assert (metrics.kv_use_mean, metrics.prefix_hit_rate) == (0.25, 0.25)
    assert (metrics.acceptance_rate, metrics.tokens_per_pass) == (0.25, 1.5)


def test_a_step_counts_prompts_and_what_was_wanted_of_it() -> None:
    class Asked:
        num_prompt, num_tokens = 5, 5

    metrics = EngineMetrics(total_blocks=(8, 4), work=StepWorkload((0,)))
    chunk = Chunk(Asked(), 3, 4, 2)  # two of the prompt, then two drafts
    metrics.count_step([chunk], 3, 0.5, (4, 3))
    assert (metrics.steps, metrics.step_s, metrics.prompt_tokens) == (1, 0.5, 2)
    assert metrics.work.logit_rows == 3
    assert (metrics.kv_use_sum, metrics.kv_use_peak) == (0.5, 0.5)
