"""Rows of a step that score tokens of prompts: which they are, and what their logits say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optc.errors import RequestError
from optc.runtime.executable.executable import Executable, Float32, Int32
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sample_step import sample_step
from optc.runtime.sampling.sampler import Drawn, NoToken, Row
from optc.runtime.sampling.sampler_math import HELD
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.scoring.scored_prompt import ScoredPrompt, ScoredToken
from optc.runtime.step.logit_rows import LogitRows

#: What a row without penalties reads of its tokens.
_NOTHING: Int32 = np.zeros(0, np.int32)


class ScoredRows(NamedTuple):
    """Rows of one request from its token ``row`` on, whose logits are the rows ``at`` of the
    step's."""

    request: Request
    prompt: ScoredPrompt
    row: int
    at: Sequence[int]


class StepScores(NamedTuple):
    """The rows that a step scores.

    Attributes:
        rows: Rows of the step whose logits are wanted besides those that tokens are drawn from,
            and behind those.
        of: By request, where its logits are.
    """

    rows: list[int]
    of: list[ScoredRows]


def scores_of(chunks: Sequence[Chunk[Request]], draws: Sequence[LogitRows]) -> StepScores:
    """The rows of ``chunks`` that score tokens of prompts.

    Args:
        chunks: The step's.
        draws: Where the rows that complete a request are. That of one that generates nothing
            scores its prompt's last token.
    """
    scores = StepScores([], [])
    firsts = {draw.request.id: draw.first for draw in draws}
    place = sum(len(draw.at) for draw in draws)
    begin = 0  # row of the step
    for chunk in chunks:
        request, prompt = chunk.request, chunk.request.scored
        if prompt is not None and prompt.row is not None:
            first = max(chunk.start, prompt.row)
            end = min(chunk.start + chunk.rows, len(prompt.tokens) - 1)
            drawn = [firsts[request.id]] if chunk.completes and end == request.num_tokens else []
            more = max(0, end - first - len(drawn))
            row = begin + first - chunk.start
            scores.rows.extend(range(row, row + more))
            at = [*range(place, place + more), *drawn]
            place += more
            if at:
                scores.of.append(ScoredRows(request, prompt, first, at))
        begin += chunk.rows
    return scores


def score(executable: Executable, logits: Float32, scores: StepScores) -> list[Request]:
    """Record the log-probabilities that a step gives.

    Args:
        executable: The engine whose last step gave the logits.
        logits: [R, V].
        scores: Where the rows are.

    Returns:
        Those whose logits are broken, with their error.
    """
    rows = [Row(scored.prompt.params, 0, 0, _NOTHING, 0) for scored in scores.of for _ in scored.at]
    places = [place for scored in scores.of for place in scored.at]
    drawn = iter(sample_step(executable, logits, rows, places).drawn)
    broken = []
    for scored in scores.of:
        each = [next(drawn) for _ in scored.at]
        if not _record(scored, each, logits):
            broken.append(scored.request)
    return broken


def _record(scored: ScoredRows, drawn: Sequence[Drawn], logits: Float32) -> bool:
    """Record one request's tokens; False, with its error set, if one has no probability."""
    tokens = scored.prompt.tokens[scored.row + 1 :].tolist()
    known: list[ScoredToken] = []
    for token, best, place in zip(tokens, drawn, scored.at, strict=False):
        if isinstance(best, NoToken) or best.logprobs is None:
            scored.request.error = RequestError(
                NoToken.NAN.value,
                where=f"prompt token {scored.row + 1 + len(known)}",
                hint="the weights or the engine are broken for this input",
            )
            return False
        row = logits[place]
        # As of any token: minus (its distance and the logarithm of the whole mass), where the
        # likeliest one has no distance.
        distance = min(float(row[best.token]) - float(row[token]), HELD)
        known.append(
            ScoredToken(
                best.logprobs,
                -(distance - best.logprobs.logprob),
                1 + int(np.count_nonzero(row > row[token])),
            )
        )
    scored.prompt.add(scored.row, known)
    return True
