"""`Speculator`: drafts for all requests of an engine, and what came of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.speculative.planning.controller import PLACES, Controller, Draftable, StepTimes
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest, Learner, Proposer
from optc.runtime.step.tree import deepest_path


@dataclass
class DraftSource:
    """A source of drafts, and the controller that decides how many.

    Attributes:
        proposer: Makes them.
        controller: Says how many, from the acceptance of this source's drafts alone.
        learner: Told what the model says of its drafts; None where the proposer does not care.
        pending: Rows that must be computed before a request's first draft; None where drafts are
            not computed.
        grades: How sure each draft for a request would be, none if there are none to be had; None
            where the proposer does not know before it drafts.
        note_rows: As `Speculator.note_rows`, for a proposer that reads what the step computed.
        note_step: As `Speculator.note_step`, for one that reads what it computed of every row.
        attach: Called with the scheduler whose requests are drafted for, before the first step.
        release: Called at the end, where the proposer holds more than memory.
        seconds: In which the drafts of this step were made.
        drafted: Drafts of this source that were verified in this step.
        accepted: Those of them that were accepted.
    """

    proposer: Proposer
    controller: Controller
    learner: Learner | None = None
    pending: Callable[[Request], int] | None = None
    grades: Callable[[Request], Sequence[int]] | None = None
    note_rows: Callable[[Mapping[int, int]], None] | None = None
    note_step: Callable[[Sequence[Chunk[Request]]], None] | None = None
    attach: Callable[[Scheduler[Request]], None] | None = None
    release: Callable[[], None] | None = None
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0

    def propose(self, requests: Sequence[Request], sequences: int) -> list[Request]:
        """Give requests their drafts; returns those that got some.

        Args:
            requests: Those that decode, have room, and have no drafts yet.
            sequences: All sequences of the step.
        """
        asked: list[Request] = []
        known: list[Draftable] = []
        for request in requests:
            grades = self.grades(request) if self.grades else PLACES
            if grades:
                pending = self.pending(request) if self.pending else 1
                asked.append(request)
                known.append(Draftable(request.id, request.room, pending, grades))
        counts = self.controller.counts(known, sequences)
        wanted = [
            DraftRequest(request, min(count, request.room))
            for request, count in zip(asked, counts, strict=True)
            if count
        ]
        if not wanted:
            return []
        drafted = []
        for (request, _), drafts in zip(wanted, self.proposer.propose(wanted), strict=True):
            if drafts.tokens:
                request.draft(drafts.tokens, drafts.parents)
                drafted.append(request)
        return drafted


class Speculator:
    """Asks its sources in order; a request is drafted for by the first that has something.

    Args:
        sources: The surest first, for example tokens that a grammar forces, what the text
            repeats, a draft model.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self, sources: Sequence[DraftSource], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._drafted_by: dict[int, DraftSource] = {}

    def attach(self, scheduler: Scheduler[Request]) -> None:
        """State whose requests are drafted for; their KV pools are allocated."""
        for source in self._sources:
            if source.attach is not None:
                source.attach(scheduler)

    @property
    def notes_rows(self) -> bool:
        """True if some source wants to know from which rows tokens were drawn."""
        return any(source.note_rows is not None for source in self._sources)

    def propose(self, running: Sequence[Request]) -> bool:
        """Give each request that decodes its drafts for the next step, and the others none.

        Returns:
            Whether there are any.
        """
        self._drafted_by.clear()
        for request in running:
            if request.num_drafted:
                request.draft([])
        left: list[Request] | None = None
        for source in self._sources:
            started = self._clock()
            source.seconds, source.drafted, source.accepted = 0.0, 0, 0
            if not source.controller.ready():
                continue
            if left is None:
                left = [request for request in running if request.decodes and request.room > 0]
            if left:
                drafted = source.propose(left, len(running))
                self._drafted_by.update((request.id, source) for request in drafted)
                left = [request for request in left if not request.num_drafted]
            source.seconds = self._clock() - started
        return bool(self._drafted_by)

    def note_rows(self, rows: Mapping[int, int]) -> None:
        """State, by request id, the row of the step's logits that its last token was drawn from."""
        for source in self._sources:
            if source.note_rows is not None:
                source.note_rows(rows)

    def note_step(self, chunks: Sequence[Chunk[Request]]) -> None:
        """State whose rows the target's step has just computed."""
        for source in self._sources:
            if source.note_step is not None:
                source.note_step(chunks)

    def learn(self, request: Request, checked: DraftOutcome) -> None:
        """Take note of a verification of at least one draft."""
        source = self._drafted_by[request.id]
        source.drafted += checked.drafted
        source.accepted += checked.accepted
        deepest = deepest_path(request.draft_parents, checked.drafted)
        source.controller.learn(request.id, deepest, checked.accepted)
        if source.learner is not None:
            source.learner.learn(request, checked)

    def observe_step(
        self, sequences: int, rows: int, seconds: float, *, mixed: bool = False
    ) -> None:
        """Take note of a step, from `propose` to its end; ``mixed`` if prompts had a part in it."""
        drafting_s = sum(source.seconds for source in self._sources)
        for source in self._sources:
            own_s = seconds - drafting_s + source.seconds
            source.controller.observe(
                StepTimes(
                    sequences, rows, own_s, source.seconds, source.drafted, source.accepted, mixed
                )
            )

    def forget(self, request: Request) -> None:
        """Drop the state of a request that ended."""
        for source in self._sources:
            source.controller.forget(request.id)
            source.proposer.forget(request)

    def close(self) -> None:
        """Release what the sources hold."""
        for source in self._sources:
            if source.release is not None:
                source.release()
