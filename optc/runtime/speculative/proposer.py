"""`Proposer`, what drafts tokens for the requests of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from optc.runtime.requests.request import Request


class DraftRequest(NamedTuple):
    """A request that ``decodes``, and how many drafts it may be given at most: 1 to its
    ``room``.

    Where its ``num_pending`` is above 1 a grammar forced its last tokens: none of these has been
    computed, so that there are no logits or hidden states behind the last but one."""

    request: Request
    limit: int


class Drafts(NamedTuple):
    """Tokens that may follow the known tokens of a request; none where nothing is proposed.

    Attributes:
        tokens: [k] drafts, at most ``DraftRequest.limit``.
        parents: [k] draft that each one follows, an earlier one, or -1 for the last known token;
            None is a chain. Trees are for engines whose ``spec.tree`` holds. The most likely path
            should come first: it needs no copy if it is accepted, and what does not fit into a
            step is cut off at the end.
    """

    tokens: list[int]
    parents: list[int] | None = None


class DraftOutcome(NamedTuple):
    """The verdict of a step on the drafts of a request.

    Attributes:
        drafted: k, the first of the proposed drafts that were in the step.
        path: Indices of the accepted drafts, ascending.
        best: [1 + k] the model's most likely token after the known tokens and after each draft,
            the rejected ones included.
    """

    drafted: int
    path: tuple[int, ...]
    best: Sequence[int]

    @property
    def accepted(self) -> int:
        """Number of accepted drafts."""
        return len(self.path)


class Learner(Protocol):
    """A proposer that learns from what the model says of its drafts."""

    def learn(self, request: Request, checked: DraftOutcome) -> None:
        """Take note of a verification of at least one draft; the request's tokens do not hold the
        accepted ones yet."""
        ...


class Proposer(Protocol):
    """Drafts for all requests of an engine at once; any drafts are allowed, good ones are fast.

    A proposer reads what it needs from ``request.tokens``, which grow by what was verified only.
    """

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """Drafts for each of the requests (at least one), in their order, at most ``limit``.

        One call a step; a request that is not among them draws on, drafted by others or not.
        """
        ...

    def forget(self, request: Request) -> None:
        """Drop what is kept of a request that ended; it may never have been asked for."""
        ...
