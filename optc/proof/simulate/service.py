"""Serving an engine to see what its steps take in service: the steps, and what is between them.

Steps in service take longer than the same steps repeated: shapes take turns, the caller's thread
wakes up and takes a core from the engine's, and so do other programs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from optc.proof.bench.replay import warm_up
from optc.proof.simulate.step_times import Rows
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Executable, Float32, StepBatch
from optc.runtime.handle import Handle
from optc.runtime.loop.replacement import OpenExecutable
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from optc.runtime.text.tokenizer import Tokenizer

#: Decode steps of a request, and the tokens of its prompt, where nothing but decoding is seen.
_DECODE_STEPS, _DECODE_PROMPT = 16, 24
#: How long each number of decoding requests is served, once at least.
_DECODE_S = 0.2
#: Requests in flight where prompts arrive as others end, and how long each is served.
_IN_FLIGHT, _MIXED_S = (2, 8), 1.0
#: Longest prompt and output there.
_LONGEST_PROMPT, _LONGEST_OUTPUT = 320, 64
#: Requests that reach an idle engine, the pause before each, and the tokens of their prompts.
_ARRIVALS, _PAUSE_S, _ARRIVING_PROMPT = 20, 0.01, 128


class ServedStep(NamedTuple):
    """A step as it was served: what it computed, and when."""

    sequences: tuple[Rows, ...]
    logit_rows: int
    began_s: float
    ended_s: float


@dataclass
class Service:
    """Measured times of an engine in service.

    Attributes:
        steps: In order.
        submits: Seconds of each call that handed a request in while others were served.
        reaches: Seconds from when a request was due to the begin of its first step, of a caller
            that sleeps until then, on an idle engine.
    """

    steps: list[ServedStep] = field(default_factory=list)
    submits: list[float] = field(default_factory=list)
    reaches: list[float] = field(default_factory=list)

    def add(self, other: Service) -> None:
        """Add what was seen at another time."""
        self.steps += other.steps
        self.submits += other.submits
        self.reaches += other.reaches


class Watched:
    """An engine whose steps are noted; all else is the engine's own."""

    def __init__(
        self, executable: Executable, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._executable = executable
        self._clock = clock
        self.steps: list[ServedStep] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def step(self, batch: StepBatch) -> Float32:
        """The engine's step."""
        began = self._clock()
        logits = self._executable.step(batch)
        ended = self._clock()
        new = np.diff(batch.query_starts).tolist()
        sequences = tuple(map(Rows, new, batch.kv_lengths[0].tolist()))
        self.steps.append(ServedStep(sequences, len(batch.logit_rows), began, ended))
        return logits


def serve(
    open_executable: OpenExecutable,
    tokenizer: Tokenizer | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Service:
    """Serve through the public engine, greedy, with sampling and text and without prefix cache:
    some numbers of requests that decode together, then prompts that arrive while others decode,
    then some that find nobody else."""
    watched: list[Watched] = []

    def opened() -> Executable:
        watched.append(Watched(open_executable(), clock))
        return cast("Executable", watched[-1])

    with Engine(opened, ServeSettings(prefix_cache=False), tokenizer=tokenizer) as engine:
        warm_up(engine)
        watched[0].steps.clear()
        service = Service(watched[0].steps)
        for count in decode_counts(engine):
            _decode(engine, count, clock)
        for count in _IN_FLIGHT:
            service.submits += _mixed(engine, count, clock)
        service.reaches = [_reach(engine, watched[0].steps, clock) for _ in range(_ARRIVALS)]
    return service


def begun(step: ServedStep) -> int:
    """Requests that begin in a step."""
    return sum(new == length for new, length in step.sequences)


def follows(step: ServedStep) -> bool:
    """True if a step goes on with what the one before it did; else there may have been a pause."""
    return begun(step) < len(step.sequences)


def decode_counts(engine: Engine) -> list[int]:
    """Numbers of requests that decode together: few, and as many as the engine serves."""
    spec = engine.spec
    most = min(spec.max_sequences, spec.max_logit_rows, max(1, spec.max_rows // 2))
    return [*(count for count in (1, 2, 4, 8, 16, 32) if count < most), most]


def _decode(engine: Engine, count: int, clock: Callable[[], float]) -> None:
    prompt = min(_DECODE_PROMPT, engine.max_context - 3)
    steps = min(_DECODE_STEPS, engine.max_context - prompt - 1)
    tokens = (np.arange(prompt) % engine.spec.vocab_size).tolist()
    began = now = clock()
    while now == began or now - began < _DECODE_S:
        for output in engine.generate([tokens] * count, _outputs(steps + 1)):
            output.raise_for_error()
        now = clock()


def _mixed(engine: Engine, count: int, clock: Callable[[], float]) -> list[float]:
    """Keep ``count`` requests of random lengths in flight; seconds of each submit."""
    rng = np.random.default_rng(count)
    longest = max(2, min(_LONGEST_PROMPT, engine.max_context // 2))
    outputs = max(2, min(_LONGEST_OUTPUT, engine.max_context // 4))
    in_flight: deque[Handle] = deque()
    submits: list[float] = []
    began = clock()
    while not submits or clock() - began < _MIXED_S:
        if len(in_flight) == count:
            in_flight.popleft().result()
        prompt = rng.integers(engine.spec.vocab_size, size=rng.integers(1, longest)).tolist()
        started = clock()
        in_flight.append(engine.submit(prompt, _outputs(int(rng.integers(1, outputs)))))
        submits.append(clock() - started)
    for handle in in_flight:
        handle.result()
    return submits


def _reach(engine: Engine, steps: list[ServedStep], clock: Callable[[], float]) -> float:
    prompt = [0] * min(_ARRIVING_PROMPT, engine.max_context - 2)
    before, due = len(steps), clock() + _PAUSE_S
    time.sleep(_PAUSE_S)
    engine.submit(prompt, _outputs(1)).result()
    return steps[before].began_s - due


def _outputs(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)
