"""Replaying a workload on an engine, open loop, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from optc.proof.bench.workload import Job
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.quantiles import Quantiles
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.system.progress import Progress, no_progress


@dataclass(frozen=True)
class Served:
    """A request that ended well: its times, and its tokens."""

    metrics: RequestMetrics
    prompt_tokens: int
    output_tokens: int


@dataclass
class Run:
    """The measured run of a workload, its warm-up left out.

    Attributes:
        requests: Those that were served.
        failed: How many were not.
        counters: The engine's, of the time from the first counted arrival on.
        seconds: From the first counted arrival to the end of the last request.
        offered_per_s: Rate of the counted arrivals; None for one alone.
        lateness: How much later than planned requests were sent.
    """

    requests: list[Served]
    failed: int
    counters: EngineMetrics
    seconds: float
    offered_per_s: float | None
    lateness: Quantiles = field(default_factory=Quantiles)


def replay(
    engine: Engine,
    jobs: Sequence[Job],
    *,
    warmup: int = 0,
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """Send each job when it is due, greedy and of fixed length, and wait for all.

    Latencies count from the time a request was due, so that a sender that falls behind does not
    hide the wait.

    Args:
        engine: Nobody else uses it.
        jobs: In order of time.
        warmup: So many of the first jobs are served but not counted; fewer than there are.
        progress: Told how many have been sent.
        clock: As the engine's, ``time.perf_counter``.
        sleep: Waits so many seconds.

    Raises:
        EngineError: The engine failed.
    """
    start = clock()
    before = engine.metrics()
    lateness = Quantiles()
    sent: list[tuple[Job, Handle]] = []
    for index, job in enumerate(jobs):
        progress("replay", index, len(jobs))
        wait = start + job.arrival_s - clock()
        if wait > 0:
            sleep(wait)
        if index == warmup:
            before = engine.metrics()
        lateness.add(max(0.0, clock() - start - job.arrival_s))
        params = SamplingParams(max_tokens=job.output_tokens, temperature=0, ignore_eos=True)
        sent.append((job, engine.submit(job.prompt.tolist(), params)))
    outputs = [(job, handle.result()) for job, handle in sent]
    progress("replay", len(jobs), len(jobs))
    served = [
        Served(
            replace(output.metrics, arrived_s=start + job.arrival_s),
            output.prompt_tokens,
            output.output_tokens,
        )
        for job, output in outputs[warmup:]
        if output.error is None
    ]
    counters = engine.metrics().since(before)
    return make_run(jobs[warmup:], served, counters, start, lateness)


def make_run(
    jobs: Sequence[Job],
    served: list[Served],
    counters: EngineMetrics,
    start: float,
    lateness: Quantiles | None = None,
) -> Run:
    """The run of counted ``jobs`` on a clock that read ``start`` when the workload began."""
    began = jobs[0].arrival_s
    ends = [s.metrics.finished_s for s in served if s.metrics.finished_s is not None]
    span = jobs[-1].arrival_s - began
    return Run(
        served,
        len(jobs) - len(served),
        counters,
        max(ends, default=start + began) - start - began,
        (len(jobs) - 1) / span if span > 0 else None,
        lateness or Quantiles(),
    )


def warm_up(engine: Engine) -> None:
    """Serve one short request, so that no measured one meets cold code and weights."""
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    engine.generate([[0] * min(8, engine.max_context - 2)], params)[0].raise_for_error()
