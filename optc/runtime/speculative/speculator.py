"""`Speculator`: drafts for all requests of an engine, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from optc.errors import InputError
from optc.runtime.request import Request
from optc.runtime.speculative.controller import Acceptance, BreakEven, Controller
from optc.runtime.speculative.lookahead import LookaheadProposer
from optc.runtime.speculative.proposer import (
    Checked,
    Learner,
    NGramProposer,
    Proposer,
    Wanted,
)
from optc.runtime.tree import deepest_path

#: How drafts are made.
Speculate = Literal["off", "ngram", "lookahead"]


@dataclass
class Source:
    """Where drafts come from, and who decides how many.

    Attributes:
        proposer: Makes them.
        controller: Says how many, from the acceptance of this source's drafts alone.
        learner: Told what the model says of its drafts; None where the proposer does not care.
        acceptance: By request id.
    """

    proposer: Proposer
    controller: Controller
    learner: Learner | None = None
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


def make_speculator(kind: str) -> Speculator | None:
    """The speculator that a user asks for by name; None for ``off``.

    Raises:
        InputError: There is no such kind.
    """
    if kind == "off":
        return None
    if kind == "ngram":
        return Speculator([Source(NGramProposer(), BreakEven())])
    if kind == "lookahead":
        lookahead = LookaheadProposer()
        return Speculator([Source(lookahead, BreakEven(), lookahead)])
    raise InputError(
        f"speculation by {kind!r} is not known",
        where="speculate",
        hint="one of off, ngram, lookahead",
    )
