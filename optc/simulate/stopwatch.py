"""Timing a loaded engine: whole steps of given shapes, and what the runtime adds around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from optc.bench.batches import ragged_batch
from optc.progress import Progress
from optc.runtime.engine import Engine
from optc.runtime.executable import Executable, StepBatch
from optc.runtime.kv_layout import block_size_for
from optc.runtime.params import SamplingParams
from optc.simulate.step_times import Rows

#: Tokens of a KV block, or the engine's own multiple if that is larger.
_BLOCK_TOKENS = 64
#: How long a shape is repeated in one turn, at least once: without and with the stopwatch.
_TURN_S = 0.025
#: Decode steps that are served, and the tokens of their prompts.
_SERVED_STEPS, _SERVED_PROMPT = 16, 24
#: How long each number of requests is served, once at least.
_SERVED_S = 0.2


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
    longest = max(rows.length for shape in shapes for rows in shape)
    size = block_size_for(spec, longest, about=_BLOCK_TOKENS)
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
    """Decode steps of a served engine: their sequences, the tokens of each halfway through them,
    and the median seconds from one step's tokens to the next's."""

    sequences: int
    length: int
    seconds: float


def serve_steps(engine: Engine) -> list[ServedSteps]:
    """Decode with some numbers of requests through the public engine, greedy, at short contexts:
    with sampling, text, and what its thread does. Its prefix cache should be off."""
    spec = engine.spec
    most = min(spec.max_sequences, spec.max_logit_rows, max(1, spec.max_rows // 2))
    counts = [count for count in (1, 2, 4, 8, 16) if count < most]
    return [_serve(engine, count) for count in [*counts, most]]


def _serve(engine: Engine, count: int) -> ServedSteps:
    prompt = min(_SERVED_PROMPT, engine.max_context - 3)
    steps = min(_SERVED_STEPS, engine.max_context - prompt - 1)
    tokens = np.arange(prompt) % engine.spec.vocab_size
    params = SamplingParams(max_tokens=steps + 1, temperature=0, ignore_eos=True)
    seconds: list[float] = []
    while not seconds or sum(seconds) < _SERVED_S:
        outputs = engine.generate([tokens.tolist()] * count, params)
        times = [output.raise_for_error().metrics.token_times_s for output in outputs]
        seconds += _gaps(times)
    return ServedSteps(count, prompt + 1 + steps // 2, float(np.median(seconds)))


def _gaps(times: Sequence[Sequence[float]]) -> list[float]:
    """Seconds between the steps in which all requests decoded; if there were none, between all."""
    began, ended = max(t[0] for t in times), min(t[-1] for t in times)
    together = np.unique([t for t in chain(*times) if began <= t <= ended])
    if len(together) < 2:
        together = np.unique([*chain(*times)])
    gaps: list[float] = np.diff(together).tolist()
    return gaps
