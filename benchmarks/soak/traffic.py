"""Clients of a soak: threads that hand requests in, and what is compared afterwards."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import optc
from benchmarks.soak.draws import Job, Manner
from optc.errors import EngineError
from optc.runtime.outputs import Completion

#: Seconds after which a request is taken to wait for ever.
PATIENCE_S = 120.0
#: Why a completion may have less than it would have by its own.
_CUT = ("cancelled", "deadline")


class Outcome(NamedTuple):
    """The result of one completion."""

    tokens: tuple[int, ...]
    reason: str
    text: str


@dataclass
class Tally:
    """Counts of what clients met, of all threads; ``lock`` guards them."""

    outcomes: dict[Job, Counter[tuple[Outcome, ...]]] = field(default_factory=dict)
    requests: int = 0
    tokens: int = 0
    abandoned: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, job: Job, completions: tuple[Completion, ...]) -> None:
        """Note a request that ended."""
        with self.lock:
            self.requests += 1
            self.tokens += sum(len(one.token_ids) for one in completions)
            self.reasons.update(one.finish_reason for one in completions)
            self.errors.update(f"request: {one.error}" for one in completions if one.error)
            self.outcomes.setdefault(job, Counter())[outcome(completions)] += 1

    def fault(self, text: str) -> None:
        """Note something that must not happen."""
        with self.lock:
            self.errors[text] += 1


def outcome(completions: tuple[Completion, ...]) -> tuple[Outcome, ...]:
    """The parts of completions that must be the same whenever a job is asked for."""
    return tuple(Outcome(one.token_ids, one.finish_reason, one.text) for one in completions)


def serve_one(engine: optc.Engine, job: Job, manner: Manner, tally: Tally) -> None:
    """Hand one request in and wait for its end, unless it is abandoned."""
    if manner.abandon is not None:
        abandon(engine, job, manner, manner.abandon)
        with tally.lock:
            tally.abandoned += 1
        return
    handle = engine.submit(job.prompt, job.params, adapter=job.adapter, **manner.terms)
    texts: dict[int, str] = {}
    pieces = 0
    if manner.cancel_after == 0:
        handle.cancel()
    if manner.stream or manner.cancel_after:
        for delta in handle:
            texts[delta.index] = texts.get(delta.index, "") + delta.text
            pieces += 1
            if pieces == manner.cancel_after:
                handle.cancel()
    try:
        completions = handle.result(PATIENCE_S).completions
    except TimeoutError:
        tally.fault("a request waits for ever")
        handle.cancel()
        return
    if texts and any(texts.get(one.index, "") != one.text for one in completions):
        tally.fault("the streamed text is not that of the result")
    tally.take(job, completions)


def abandon(engine: optc.Engine, job: Job, manner: Manner, pieces: int) -> None:
    """Hand one request in, read some of it, and lose it: nothing says that nobody wants it."""
    if manner.loop:
        asyncio.run(_read_some(engine, job, manner, pieces))
        return
    handle = engine.submit(job.prompt, job.params, adapter=job.adapter, **manner.terms)
    for _ in zip(range(pieces), handle, strict=False):
        pass


async def _read_some(engine: optc.Engine, job: Job, manner: Manner, pieces: int) -> None:
    stream = engine.stream(job.prompt, job.params, adapter=job.adapter, **manner.terms)
    if pieces:
        async for _ in stream:
            pieces -= 1
            if not pieces:
                return


class Clients:
    """Threads that hand in requests until they are told to stop, or the engine has died.

    Args:
        count: How many.
        engine: Serves them.
        draw: The next request, from the client's own noise.
        tally: Where what they meet is noted.
        seed: Of their noise.
    """

    def __init__(
        self,
        count: int,
        engine: optc.Engine,
        draw: Callable[[random.Random], tuple[Job, Manner]],
        tally: Tally,
        seed: str,
    ) -> None:
        self._engine, self._draw, self._tally = engine, draw, tally
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{seed}/{number}",), daemon=True)
            for number in range(count)
        ]

    def run(self, seconds: float) -> bool:
        """Let them work so long, and wait for their last requests; whether all came back."""
        until = time.monotonic() + seconds
        try:
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))
        finally:
            self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, seed: str) -> None:
        rng = random.Random(seed)
        done = False  # each hands in one request, however short the time
        while not done:
            job, manner = self._draw(rng)
            try:
                serve_one(self._engine, job, manner, self._tally)
            except EngineError as error:
                self._tally.fault(f"engine: {error} ({error.__cause__!r})")
                return
            except optc.OptcError as error:
                self._tally.fault(f"refused: {error}")
            done = self._stop.is_set()


def differences(tally: Tally, job: Job, alone: tuple[Outcome, ...]) -> list[str]:
    """Differences of a request's outcomes from those that it gives alone, in words."""
    found = []
    for mine, count in tally.outcomes.get(job, {}).items():
        for index, (one, other) in enumerate(zip(mine, alone, strict=True)):
            same = one == other
            if one.reason in _CUT:  # beams end with what is best so far
                cut = other.tokens[: len(one.tokens)]
                same = job.params.beam_width is not None or one.tokens == cut
            if not same:
                found.append(f"{count} x completion {index} of {job}: {one} instead of {other}")
    return found
