"""`LogitRows`: one request's rows in the logits of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optc.runtime.executable.executable import Executable, Float32, Int32
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sample_step import sample_step
from optc.runtime.sampling.sampler import Mask, Row
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.masks import Constrained
from optc.runtime.step.verifier import Verdict, drafted_rows, verify


class LogitRows(NamedTuple):
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

    @property
    def at(self) -> range:
        """Its rows of the logits."""
        return range(self.first, self.first + self.drafted + 1)

    def rows(self, masks: Mask | None) -> list[Row]:
        """[1 + drafted] what to sample, under the step's masks [R, words]."""
        request, drafted = self.request, self.drafted
        path = request.path[: request.num_tokens + drafted] if drafted else request.tokens
        row = Row(request.params, request.seed, request.index, path, request.num_prompt)
        allowed = None
        ruled = request.constraint is not None or request.rules is not None
        if masks is not None and ruled:
            allowed = [masks[i] for i in self.at]
        if drafted:
            return drafted_rows(row, self.drafts, allowed, self.parents)
        return [row if allowed is None else row._replace(mask=allowed[0])]


class Judged(NamedTuple):
    """The result of a request's draws.

    Attributes:
        verdict: What it accepts.
        best: [1 + drafted] the likeliest token of each of its rows of logits.
    """

    verdict: Verdict
    best: list[int]


def judge(
    executable: Executable, logits: Float32, draws: Sequence[LogitRows], masks: Mask | None
) -> list[Judged]:
    """Sample the rows of all requests at once and verify their drafts.

    Args:
        executable: The engine whose step gave the logits.
        logits: [R, V].
        draws: Where the requests' rows are.
        masks: [R, words] what requests with a constraint may draw.
    """
    rows = [row for draw in draws for row in draw.rows(masks)]
    samples = sample_step(executable, logits, rows, [i for draw in draws for i in draw.at])
    judged: list[Judged] = []
    start = 0
    for draw in draws:
        end = start + draw.drafted + 1
        sampled = samples.drawn[start:end]
        verdict = verify(sampled, draw.drafts, draw.parents) if draw.drafted else Verdict(sampled)
        judged.append(Judged(verdict, samples.best[start:end]))
        start = end
    return judged


def constrained(draws: Sequence[LogitRows]) -> list[Constrained]:
    """Those of requests that have a constraint."""
    return [
        Constrained(constraint, draw.first, draw.drafts.tolist(), draw.parents)
        for draw in draws
        if (constraint := draw.request.constraint) is not None
    ]


def logit_rows_of(chunks: Sequence[Chunk[Request]]) -> list[LogitRows]:
    """The rows of logits of the requests that a step completes."""
    draws: list[LogitRows] = []
    first = 0
    for chunk in chunks:
        if chunk.completes:
            parents = chunk.request.draft_parents if chunk.drafted else None
            if parents is not None:  # of the drafts that the scheduler had rows for
                parents = parents[: chunk.drafted]
            draws.append(LogitRows(chunk.request, first, chunk.drafted, parents))
            first += chunk.drafted + 1
    return draws


def last_rows(draws: Sequence[LogitRows], verdicts: Sequence[Verdict]) -> dict[int, int]:
    """By request id, the row of the step's logits that its last token was drawn from."""
    return {
        draw.request.id: draw.first + (verdict.path[-1] + 1 if verdict.path else 0)
        for draw, verdict in zip(draws, verdicts, strict=True)
    }
