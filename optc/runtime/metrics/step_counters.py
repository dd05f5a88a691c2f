"""The additions of a step to the counters of the engine and of its requests, and their snapshot."""

from __future__ import annotations

from dataclasses import replace

from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.speculative.proposer import DraftOutcome
from optc.runtime.spill.spill import Spill


def count_queues(metrics: EngineMetrics, scheduler: Scheduler[Request]) -> None:
    """Count the preemptions and the prefix cache's lookups and hits of the last ``schedule``.

    The drafts of preempted requests are dropped with their blocks.
    """
    for request in scheduler.preempted:
        request.draft([])
        request.metrics.preemptions += 1
        metrics.preemptions += 1
    for request in scheduler.admitted:
        metrics.prefix_lookup_tokens += request.num_tokens
    for request, tokens in scheduler.reused:
        request.metrics.cached_tokens += tokens
        metrics.prefix_hit_tokens += tokens


def count_drafts(metrics: EngineMetrics, request: Request, checked: DraftOutcome) -> None:
    """The drafts of one request that a step verified."""
    for one in (request.metrics, metrics):
        one.drafted_tokens += checked.drafted
        one.accepted_tokens += checked.accepted


def snapshot(
    metrics: EngineMetrics, scheduler: Scheduler[Request], spill: Spill | None
) -> EngineMetrics:
    """A copy of the counters, with the present queues and blocks."""
    return replace(
        metrics.copy(),
        running=scheduler.num_running,
        waiting=scheduler.num_waiting,
        free_blocks=scheduler.blocks.available(),
        spilled_blocks=spill.num_blocks if spill else 0,
        restored_blocks=spill.restored_blocks if spill else 0,
        cached_blocks=tuple(pool.num_cached for pool in scheduler.blocks.pools),
    )
