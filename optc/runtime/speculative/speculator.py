"""`Speculator`: drafts for all requests of an engine, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from optc.runtime.request import Request
from optc.runtime.speculative.controller import Acceptance, Controller
from optc.runtime.speculative.proposer import Checked, Learner, Proposer, Wanted
from optc.runtime.tree import deepest_path


@dataclass
class Source:
    """Where drafts come from, and who decides how many.

    Attributes:
        proposer: Makes them.
        controller: Says how many, from the acceptance of this source's drafts alone.
        learner: Told what the model says of its drafts; None where the proposer does not care.
        release: Called at the end, where the proposer holds more than memory.
        acceptance: By request id.
    """

    proposer: Proposer
    controller: Controller
    learner: Learner | None = None
    release: Callable[[], None] | None = None
    acceptance: dict[int, Acceptance] = field(default_factory=dict)

    def propose(self, requests: Sequence[Request], sequences: int) -> list[Request]:
        """Give requests their drafts; returns those that got some.

        Args:
            requests: Those that decode, have room, and have no drafts yet.
            sequences: All sequences of the step.
        """
        known = [self.acceptance.setdefault(r.id, Acceptance()) for r in requests]
        counts = self.controller.counts(known, sequences)
        wanted = [
            Wanted(request, min(count, request.room))
            for request, count in zip(requests, counts, strict=True)
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
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._drafted_by: dict[int, Source] = {}

    def propose(self, running: Sequence[Request]) -> None:
        """Give each request that decodes its drafts for the next step, and the others none."""
        self._drafted_by.clear()
        left = []
        for request in running:
            request.draft([])
            if request.decodes and request.room:
                left.append(request)
        for source in self._sources:
            if not left:
                break
            for request in source.propose(left, len(running)):
                self._drafted_by[request.id] = source
            left = [request for request in left if not request.num_drafted]

    def learn(self, request: Request, checked: Checked) -> None:
        """Take note of a verification of at least one draft."""
        source = self._drafted_by[request.id]
        deepest = deepest_path(request.draft_parents, checked.drafted)
        source.acceptance[request.id].observe(deepest, checked.accepted)
        if source.learner is not None:
            source.learner.learn(request, checked)

    def observe_step(self, rows: int, seconds: float) -> None:
        """Take note of a step of decodes and drafts only."""
        for source in self._sources:
            source.controller.observe(rows, seconds)

    def forget(self, request: Request) -> None:
        """Drop the state of a request that ended."""
        for source in self._sources:
            source.acceptance.pop(request.id, None)
            source.proposer.forget(request)

    def close(self) -> None:
        """Release what the sources hold."""
        for source in self._sources:
            if source.release is not None:
                source.release()
