"""`Draw`: one request's rows in the logits of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optc.runtime.chunks import Chunk
from optc.runtime.executable import Float32, Int32
from optc.runtime.request import Request
from optc.runtime.sampler import Mask, Row, sample_row
from optc.runtime.speculative.verifier import Verdict, verify
from optc.runtime.structured.masks import Constrained


class Draw(NamedTuple):
    """The logits of one request: rows from ``first`` on, one and one for each of its drafts, which
    are a chain or descend from ``parents``."""

    request: Request
    first: int
    drafted: int
    parents: Sequence[int] | None = None

    @property
    def drafts(self) -> Int32:
        """[drafted] the drafts that the step verifies."""
        known = self.request.num_tokens
        return self.request.path[known : known + self.drafted]

    def verdict(self, logits: Float32, best: list[int], masks: Mask | None) -> Verdict:
        """Draw from the step's logits [R, V], their `best_tokens` [R] and masks [R, words]."""
        request, first, drafted, parents = self
        path = request.path[: request.num_tokens + drafted]
        rows = slice(first, first + drafted + 1)
        allowed = None if masks is None or request.constraint is None else [*masks[rows]]
        mask = None if allowed is None else allowed[0]
        row = Row(request.params, request.seed, request.index, path, request.num_prompt, mask)
        if not drafted:
            return Verdict([sample_row(logits[first], row, best[first])])
        return verify(logits[rows], best[rows], row, self.drafts, allowed, parents)


def constrained(draws: Sequence[Draw]) -> list[Constrained]:
    """Those of requests that have a constraint."""
    return [
        Constrained(constraint, draw.first, draw.drafts.tolist(), draw.parents)
        for draw in draws
        if (constraint := draw.request.constraint) is not None
    ]


def draws_of(chunks: Sequence[Chunk[Request]]) -> list[Draw]:
    """Where the logits of the requests that a step completes are."""
    draws: list[Draw] = []
    first = 0
    for chunk in chunks:
        if chunk.completes:
            parents = chunk.request.draft_parents if chunk.drafted else None
            draws.append(Draw(chunk.request, first, chunk.drafted, parents))
            first += chunk.drafted + 1
    return draws


def last_rows(draws: Sequence[Draw], verdicts: Sequence[Verdict]) -> dict[int, int]:
    """By request id, the row of the step's logits that its last token was drawn from."""
    return {
        draw.request.id: draw.first + (verdict.path[-1] + 1 if verdict.path else 0)
        for draw, verdict in zip(draws, verdicts, strict=True)
    }
