"""From logits to tokens, over all rows of a step: penalties, filters, noise, log-probabilities.

A token is drawn as the largest of filtered score plus Gumbel noise, whose values depend on the
request's seed, the output position and the token id only (`optc.runtime.noise`). So a seeded
request draws the same tokens whatever shares its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optc.runtime.executable import Float32, Int32
from optc.runtime.filters import Candidates, Filters, Int64, filter_sorted, filter_whole, likeliest
from optc.runtime.noise import gumbel
from optc.runtime.outputs import TokenLogprobs
from optc.runtime.params import SamplingParams


@dataclass(frozen=True)
class Row:
    """What the sampler needs to know of one row of logits.

    Attributes:
        params: The request's parameters.
        seed: First half of its noise key.
        index: Second half: which completion of the prompt.
        tokens: [n] prompt and output so far.
        num_prompt: How many of them are the prompt's.
    """

    params: SamplingParams
    seed: int
    index: int
    tokens: Int32
    num_prompt: int

    @property
    def position(self) -> int:
        """Output position of the token to draw."""
        return len(self.tokens) - self.num_prompt


@dataclass(frozen=True)
class Sampled:
    """One drawn token, with log-probabilities if its request wants them."""

    token: int
    logprobs: TokenLogprobs | None


def sample(logits: Float32, rows: Sequence[Row]) -> list[Sampled | None]:
    """Draw one token for each row; None where the logits hold a NaN.

    Args:
        logits: [R, V]; not changed.
        rows: The R rows' requests.
    """
    if not rows:
        return []
    adjusted = _adjust(logits, rows)
    tokens = np.argmax(adjusted, axis=1)
    # argmax finds a NaN if there is one, so that no pass of its own is needed to see it.
    valid = ~np.isnan(adjusted[np.arange(len(rows)), tokens])
    random = np.flatnonzero(valid & [not row.params.greedy for row in rows])
    if len(random):
        tokens[random] = _draw(adjusted[random], [rows[int(i)] for i in random])
    return [
        Sampled(int(token), _logprobs(logits[i], int(token), rows[i].params)) if valid[i] else None
        for i, token in enumerate(tokens)
    ]


def _adjust(logits: Float32, rows: Sequence[Row]) -> Float32:
    """Apply penalties and biases; the rows without any are not touched."""
    if not any(row.params.adjusts_logits for row in rows):
        return logits
    adjusted = logits.copy()
    for values, row in zip(adjusted, rows, strict=True):
        if row.params.adjusts_logits:
            _penalize(values, row)
    return adjusted


def _penalize(values: Float32, row: Row) -> None:
    params = row.params
    if params.repetition_penalty != 1:
        seen = np.unique(row.tokens)
        penalty = np.float32(params.repetition_penalty)
        old = values[seen]
        values[seen] = np.where(old > 0, old / penalty, old * penalty)
    if params.presence_penalty or params.frequency_penalty:
        seen, counts = np.unique(row.tokens[row.num_prompt :], return_counts=True)
        values[seen] -= np.float32(params.presence_penalty)
        values[seen] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
    if params.logit_bias:
        ids = np.fromiter(params.logit_bias.keys(), np.int64)
        values[ids] += np.fromiter(params.logit_bias.values(), np.float32)


def _draw(logits: Float32, rows: Sequence[Row]) -> Int64:
    """[F] tokens drawn for F rows with a temperature."""
    vocab = logits.shape[1]
    filters = Filters(
        temperature=np.array([row.params.temperature for row in rows], np.float64),
        top_k=np.array([max(0, row.params.top_k) for row in rows], np.int64),
        top_p=np.array([row.params.top_p for row in rows], np.float64),
        min_p=np.array([row.params.min_p for row in rows], np.float64),
    )
    ordered = ((filters.top_k > 0) & (filters.top_k < vocab)) | (filters.top_p < 1)
    tokens = np.empty(len(rows), np.int64)
    for apply, chosen in (
        (filter_sorted, np.flatnonzero(ordered)),
        (filter_whole, np.flatnonzero(~ordered)),
    ):
        if len(chosen):
            candidates = apply(logits[chosen], filters.rows(chosen))
            tokens[chosen] = _largest_noisy(candidates, [rows[int(i)] for i in chosen], vocab)
    return tokens


def _largest_noisy(candidates: Candidates, rows: Sequence[Row], vocab: int) -> Int64:
    scores = candidates.scores
    for i, row in enumerate(rows):
        noise = gumbel(row.seed, row.index, row.position, vocab)
        scores[i] += noise if candidates.ids is None else noise[candidates.ids[i]]
    best = np.argmax(scores, axis=1)
    if candidates.ids is None:
        return best
    return candidates.ids[np.arange(len(rows)), best]


def _logprobs(logits: Float32, token: int, params: SamplingParams) -> TokenLogprobs | None:
    """Log-probabilities of one row [V] under the model's own distribution."""
    if params.logprobs is None:
        return None
    shifted = logits.astype(np.float64) - np.float64(logits.max())
    shifted -= np.log(np.exp(shifted).sum())
    top: tuple[tuple[int, float], ...] = ()
    if params.logprobs:
        ids = likeliest(logits[None], min(params.logprobs, len(logits)))[0]
        top = tuple((int(i), float(shifted[i])) for i in ids)
    return TokenLogprobs(token, float(shifted[token]), top)
