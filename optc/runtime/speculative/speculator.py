"""`Speculator`: drafts for all requests of an engine, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from optc.errors import InputError
from optc.runtime.request import Request
from optc.runtime.speculative.controller import Acceptance, BreakEven, Controller
from optc.runtime.speculative.proposer import NGramProposer, Proposer

#: How drafts are made.
Speculate = Literal["off", "ngram"]


@dataclass
class _Drafting:
    """The state of one request: how many of its tokens the proposer has seen."""

    proposer: Proposer
    seen: int = 0
    acceptance: Acceptance = field(default_factory=Acceptance)


class Speculator:
    """Asks a proposer of each request's own for drafts, as many as the controller allows.

    Args:
        make_proposer: A new proposer.
        controller: How many to draft.
    """

    def __init__(self, make_proposer: Callable[[], Proposer], controller: Controller) -> None:
        self._make_proposer = make_proposer
        self._controller = controller
        self._drafting: dict[int, _Drafting] = {}

    def propose(self, running: Sequence[Request]) -> None:
        """Give each request that decodes its drafts for the next step, and the others none."""
        for request in running:
            decodes = request.num_pending == 1 and request.room
            request.draft(self._drafts(request, len(running)) if decodes else [])

    def learn(self, request: Request, drafted: int, accepted: int) -> None:
        """Take note of a verification of at least one draft."""
        self._drafting[request.id].acceptance.observe(drafted, accepted)

    def observe_step(self, rows: int, seconds: float) -> None:
        """Take note of a step of decodes and drafts only."""
        self._controller.observe(rows, seconds)

    def forget(self, request: Request) -> None:
        """Drop the state of a request that ended."""
        self._drafting.pop(request.id, None)

    def _drafts(self, request: Request, sequences: int) -> list[int]:
        state = self._drafting.get(request.id)
        if state is None:
            state = self._drafting[request.id] = _Drafting(self._make_proposer())
        count = min(self._controller.count(state.acceptance, sequences), request.room)
        if not count:
            return []
        state.proposer.extend(request.tokens[state.seen :])
        state.seen = request.num_tokens
        return state.proposer.propose(count)


def make_speculator(kind: str) -> Speculator | None:
    """The speculator that a user asks for by name; None for ``off``.

    Raises:
        InputError: There is no such kind.
    """
    if kind == "off":
        return None
    if kind == "ngram":
        return Speculator(NGramProposer, BreakEven())
    raise InputError(
        f"speculation by {kind!r} is not known", where="speculate", hint="one of off, ngram"
    )
