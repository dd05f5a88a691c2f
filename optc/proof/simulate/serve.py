"""Serving a workload in virtual time: the runtime's own core, scheduler, blocks and caches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from optc.errors import InputError
from optc.proof.bench.replay import Run, Served, make_run
from optc.proof.bench.workload import Job
from optc.proof.simulate.step_times import Rows, StepTimes
from optc.proof.simulate.virtual import VirtualClock, VirtualEngine, VirtualProposer
from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_plan import KVPlan, plan_kv
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.row_costs import RowCosts
from optc.runtime.speculative.speculator import DraftSource, Speculator


def simulate(
    spec: StepInterface,
    times: StepTimes,
    jobs: Sequence[Job],
    settings: ServeSettings,
    *,
    warmup: int = 0,
    acceptance: float = 0.0,
    seed: int = 0,
    check: bool = False,
) -> Run:
    """Serve the jobs as the engine's own thread would, arrivals between steps.

    Args:
        spec: Of the engine.
        times: How long its steps take.
        jobs: In order of time. Those that the KV memory cannot hold fail.
        settings: Of the server. Whatever ``speculate`` says, drafts are n-grams, which need no
            other artifact.
        warmup: So many of the first jobs are served but not counted.
        acceptance: Probability that a draft is accepted if those before it are.
        seed: Of what is accepted, and of which steps are held up.
        check: Check after every step that no block is lost; slow.

    Raises:
        InputError: No job can be served, or the settings suit no engine.
        RuntimeError: A block was lost.
    """
    clock = VirtualClock()
    plan = plan_kv(spec, settings.kv_memory_bytes, settings.step_rows(spec.max_rows))
    core = Core(
        VirtualEngine(spec, times, clock, acceptance=acceptance, seed=seed),
        plan,
        settings,
        speculator=_speculator(settings, times, clock),
        clock=clock,
    )
    before = core.metrics()
    requests: list[Request] = []
    waiting = deque(enumerate(reached_s(jobs, times)))
    while waiting or core.has_work:
        if not core.has_work:
            clock.now = max(clock.now, waiting[0][1])
        while waiting and waiting[0][1] <= clock.now:
            index = waiting.popleft()[0]
            job = jobs[index]
            before = core.metrics() if index == warmup else before
            if len(job.prompt) < plan.max_context:
                request = _add(core, job, seed)
                requests += [request] if index >= warmup else []
        if core.has_work:
            core.step()
            if check:
                core.scheduler.check_integrity()
    served = [Served(r.metrics, r.num_prompt, r.num_output) for r in requests]
    if not served:
        raise _too_small(plan)
    core.scheduler.check_integrity()
    return make_run(jobs[warmup:], served, core.metrics().since(before), 0.0)


def reached_s(jobs: Sequence[Job], times: StepTimes) -> list[float]:
    """When the engine has each job: one caller hands them in when they are due, one after the
    other."""
    reached: list[float] = []
    for job in jobs:
        last = reached[-1] if reached else -inf
        reached.append(max(job.arrival_s + times.reach_s, last + times.submit_s))
    return reached


def _speculator(
    settings: ServeSettings, times: StepTimes, clock: VirtualClock
) -> Speculator | None:
    if settings.speculate in (None, "off"):
        return None
    costs = Costs(_row_costs(times))
    return Speculator(
        [DraftSource(VirtualProposer(), BreakEven(costs, settings.max_drafted))], clock
    )


def _row_costs(times: StepTimes) -> RowCosts:
    """The costs of rows that a server would have measured at its first load."""
    rows = (1, 2, 4, 8, 16, 32, 64, 128)
    seconds = [times.engine_s([Rows(count, 64 + count)], count) for count in rows]
    return RowCosts(rows, tuple(accumulate((max(s, 1e-9) for s in seconds), max)))


def _add(core: Core, job: Job, seed: int) -> Request:
    params = SamplingParams(max_tokens=job.output_tokens, temperature=0, ignore_eos=True)
    return core.add(CompletionInput(job.prompt, params, seed, arrived_s=job.arrival_s))


def _too_small(plan: KVPlan) -> InputError:
    return InputError(
        f"no request fits the KV memory, which holds {plan.max_context} tokens of one",
        where="kv_memory",
        hint="give more, or shorter prompts",
    )
