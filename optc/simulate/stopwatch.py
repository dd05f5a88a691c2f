"""Timing a loaded engine: whole steps of given shapes, and what the runtime adds around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from optc.bench.batches import ragged_batch
from optc.progress import Progress
from optc.runtime.core import Core
from optc.runtime.executable import Executable, StepBatch
from optc.runtime.kv_plan import KVPlan
from optc.runtime.params import SamplingParams
from optc.simulate.step_times import Rows

#: Tokens of a KV block, or the engine's own multiple if that is larger.
_BLOCK_TOKENS = 64
#: How long a shape is repeated in one turn, at least once: without and with the stopwatch.
_TURN_S = 0.025
#: Decode steps that are served, and the tokens of their prompts.
_SERVED_STEPS, _SERVED_PROMPT = 16, 24


def time_steps(
    executable: Executable,
    shapes: Sequence[tuple[Rows, ...]],
    rounds: int,
    progress: Progress,
    clock: Callable[[], float],
) -> list[float]:
    """Median seconds of each shape over the rounds, in which the shapes take turns.

    A turn repeats its step, first for `_TURN_S` to warm caches and clocks up, as steps in service
    follow others like them, then for as long to be timed.
    """
    spec = executable.spec
    size = max(_BLOCK_TOKENS // spec.block_multiple, 1) * spec.block_multiple
    batches = [ragged_batch(spec, shape, size) for shape in shapes]
    blocks = max(int(batch.block_tables.max()) + 1 for batch in batches)
    executable.allocate_kv((blocks,) * len(spec.groups), size)
    seconds = np.empty((rounds, len(shapes)))
    for turn in range(rounds):
        for index, batch in enumerate(batches):
            progress("step times", turn * len(shapes) + index, rounds * len(shapes))
            _repeat(executable, batch, clock)
            seconds[turn, index] = _repeat(executable, batch, clock)
    progress("step times", rounds * len(shapes), rounds * len(shapes))
    return [float(value) for value in np.median(seconds, axis=0)]


def _repeat(executable: Executable, batch: StepBatch, clock: Callable[[], float]) -> float:
    """Mean seconds of a step that is repeated for `_TURN_S`, at least once."""
    began = now = clock()
    count = 0
    while not count or now - began < _TURN_S:
        executable.step(batch)
        now = clock()
        count += 1
    return (now - began) / count


class ServedSteps(NamedTuple):
    """Decode steps of the runtime's core: their sequences, the tokens of each (halfway through
    the steps), and the median seconds of a step, everything around the engine included."""

    sequences: int
    length: int
    seconds: float


def serve_steps(executable: Executable, clock: Callable[[], float]) -> list[ServedSteps]:
    """Decode with some numbers of sequences through the runtime, greedy, at short contexts."""
    spec = executable.spec
    most = min(spec.max_sequences, spec.max_logit_rows, max(1, spec.max_rows // 2))
    return [
        _serve(executable, count, clock)
        for count in sorted({1, 2, 4, 8, 16, most})
        if count <= most
    ]


def _serve(executable: Executable, count: int, clock: Callable[[], float]) -> ServedSteps:
    spec = executable.spec
    prompt = min(_SERVED_PROMPT, spec.max_context - 2)
    steps = max(1, min(_SERVED_STEPS, spec.max_context - prompt - 1))
    size = max(_BLOCK_TOKENS // spec.block_multiple, 1) * spec.block_multiple
    blocks = count * -(-(prompt + steps + 1) // size)
    plan = KVPlan(size, (blocks,) * len(spec.groups), 0, prompt + steps + 1)
    core = Core(executable, plan, token_budget=spec.max_rows, prefix_cache=False, clock=clock)
    params = SamplingParams(max_tokens=steps + 1, temperature=0, ignore_eos=True)
    tokens = np.arange(prompt, dtype=np.int32) % spec.vocab_size
    requests = [core.add(tokens, params, seed=0) for _ in range(count)]
    seconds: list[float] = []
    while core.has_work:
        decodes = all(request.num_output for request in requests)
        began = clock()
        core.step()
        if decodes:
            seconds.append(clock() - began)
    return ServedSteps(count, prompt + 1 + steps // 2, float(np.median(seconds)))
