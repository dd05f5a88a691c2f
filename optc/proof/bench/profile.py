"""``optc bench --profile``: where the time of a step goes, kernel by kernel, beside the roof.

The roof of a kernel is the longer of its bytes at the read bandwidth and its operations at the
peak of its type; a kernel that reads neither weights nor KV and multiplies nothing has none, so
all of its time is gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from optc.proof.bench.batches import block_count, step_batch
from optc.proof.bench.paired import paired_utilization
from optc.proof.bench.utilization import Instruments
from optc.proof.roofline.ceilings import Meter, sample
from optc.proof.roofline.costs import KernelCost, StepCosts, step_work
from optc.proof.roofline.measurable import KernelTime, Profiler, StepTimes
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.kv_layout import block_size_for
from optc.system.progress import Progress, no_progress

#: Rounds of a step: the fastest counts.
ROUNDS = 20
#: Tokens of a KV block, or the engine's own multiple if that is larger.
BLOCK_SIZE = 64


@dataclass(frozen=True)
class Shape:
    """The shape of a profiled step: ``rows`` new rows of each sequence, ``context`` tokens after
    it."""

    phase: str
    sequences: int
    rows: int
    context: int


def shapes(spec: StepInterface, prompt_tokens: int, concurrency: Sequence[int]) -> list[Shape]:
    """Decode at each concurrency that one step can take, then the prefill of one prompt."""
    limit = min(spec.max_sequences, spec.max_logit_rows, spec.max_rows)
    context = min(prompt_tokens, spec.max_context)
    counts = dict.fromkeys(min(count, limit) for count in concurrency)
    rows = min(context, spec.max_rows)
    decode = [Shape("decode", count, 1, context) for count in counts]
    return [*decode, Shape("prefill", 1, rows, rows)]


def profile(
    profiler: Profiler,
    spec: StepInterface,
    instruments: Instruments,
    wanted: Sequence[Shape],
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
) -> list[dict[str, Any]]:
    """Time every shape; one JSON object for each (docs/bench.md says what the keys mean)."""
    timed = []
    for index, shape in enumerate(wanted):
        progress("profile", index, len(wanted))
        sample(instruments.meter)
        block = block_size_for(spec, shape.context, about=BLOCK_SIZE)
        blocks = block_count(shape.sequences, shape.context, block)
        profiler.allocate_kv((blocks,) * len(spec.groups), block)
        batch = step_batch(spec, shape.sequences, shape.rows, shape.context, block)
        samples: list[Mapping[str, float]] = []
        take = partial(_take, instruments.meter, samples)
        times = profiler.time_step(batch, rounds, take)
        take()
        timed.append((times, samples))
    progress("profile", len(wanted), len(wanted))
    sample(instruments.meter)
    ceilings = {name: ceiling.best for name, ceiling in instruments.meter.ceilings().items()}
    return [
        step_json(shape, times, spec, instruments.costs, ceilings, samples)
        for shape, (times, samples) in zip(wanted, timed, strict=True)
    ]


def _take(meter: Meter, samples: list[Mapping[str, float]]) -> None:
    samples.append(meter.measure())


def step_json(
    shape: Shape,
    times: StepTimes,
    spec: StepInterface,
    costs: StepCosts,
    ceilings: Mapping[str, float],
    samples: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """One profiled step as JSON; kernels in order of their time. ``samples`` are the ceilings
    before each round and after the last."""
    count = shape.sequences
    work = step_work(spec, [shape.rows] * count, [shape.context] * count, count)
    free = KernelCost(0, "fp32", {}, {})
    kernels = [
        _kernel_json(time, costs.kernels.get(time.name, free), work, ceilings, times.step_s)
        for time in sorted(times.kernels, key=lambda kernel: -kernel.seconds)
    ]
    kernel_ms = sum(kernel["ms"] for kernel in kernels)
    roof_ms = sum(kernel["roof_ms"] for kernel in kernels)
    step_ms = 1e3 * times.step_s
    return {
        "phase": shape.phase,
        "sequences": count,
        "rows": shape.rows * count,
        "context": shape.context,
        "step_ms": step_ms,
        "kernel_ms": kernel_ms,
        "outside_kernels_ms": step_ms - kernel_ms,
        "roof_ms": roof_ms,
        "gap_ms": step_ms - roof_ms,
        "of_roof": roof_ms / step_ms,
        "mbu": paired_utilization(costs.bytes_of(work), times.rounds_s, samples, "read"),
        "mfu": paired_utilization(costs.ops_of(work), times.rounds_s, samples, costs.peak),
        "call_overhead_us": 1e6 * times.call_s,
        "kernels": kernels,
    }


def _kernel_json(
    time: KernelTime,
    cost: KernelCost,
    work: Mapping[str, float],
    ceilings: Mapping[str, float],
    step_s: float,
) -> dict[str, Any]:
    moved, ops, roof_s = cost.bytes_of(work), cost.ops_of(work), cost.roof_s(work, ceilings)
    seconds = time.seconds or None  # below what a call costs: no rate
    return {
        "name": time.name,
        "shape": cost.shape,
        "calls": time.calls,
        "ms": 1e3 * time.seconds,
        "share": time.seconds / step_s,
        "bytes": moved,
        "ops": ops,
        "gb_per_s": moved / seconds / 1e9 if seconds and moved else None,
        "gop_per_s": ops / seconds / 1e9 if seconds and ops else None,
        "roof_ms": 1e3 * roof_s,
        "of_roof": roof_s / seconds if seconds and roof_s else None,
        "gap_ms": 1e3 * (time.seconds - roof_s),
    }
