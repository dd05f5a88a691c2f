"""From logits to tokens: masks, penalties, filters, noise, log-probabilities.

A token is drawn as the largest of score (minus its distance, `optc.runtime.sampling.sampler_math`)
plus Gumbel noise among those that the filters leave, the lowest id on ties. The noise depends on
the request's seed, the output position and the token id only (`optc.runtime.sampling.noise`), and
no row is computed together with another: a seeded request draws the same tokens whatever shares its
steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Float32, Int32
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.filters import kept_tokens, nearest
from optc.runtime.sampling.noise import Words, gumbel, least_word, words
from optc.runtime.sampling.sampler_math import WHOLE_MASS, Float64, Int64, distances, log, masses
from optc.runtime.scoring.token_logprobs import TokenLogprobs

#: [ceil(V / 32)] bits of the tokens that are allowed: bit i of word w is token 32 w + i.
Mask = npt.NDArray[np.uint32]

#: Tokens within this distance always have their noise computed.
_REACH = 6.0


class Row(NamedTuple):
    """The sampler's inputs for one row of logits.

    Attributes:
        params: The request's parameters.
        seed: First half of its noise key.
        completion: Second half: which completion of the prompt.
        tokens: [n] prompt and output so far.
        num_prompt: How many of them are the prompt's.
        mask: The only tokens that may be drawn; None is all.
    """

    params: SamplingParams
    seed: int
    completion: int
    tokens: Int32
    num_prompt: int
    mask: Mask | None = None

    @property
    def position(self) -> int:
        """Output position of the token to draw."""
        return len(self.tokens) - self.num_prompt


class Sampled(NamedTuple):
    """One drawn token, with log-probabilities if its request wants them."""

    token: int
    logprobs: TokenLogprobs | None


class NoToken(Enum):
    """Why no token can be drawn from a row."""

    NAN = "the model's logits hold a NaN"
    NOTHING_ALLOWED = "the mask, with the request's biases, allows no token"


#: What drawing from a row gives.
Drawn = Sampled | NoToken


def sample(logits: Float32, rows: Sequence[Row]) -> list[Drawn]:
    """Draw one token for each row.

    Args:
        logits: [R, V]; not changed.
        rows: The R rows' requests.
    """
    if not rows:
        return []
    best = best_tokens(logits)
    return [sample_row(logits[i], row, best[i]) for i, row in enumerate(rows)]


def best_tokens(logits: Float32) -> list[int]:
    """The largest logit's id of each row [R, V]: the lowest on ties, that of a NaN if there is
    one."""
    best: list[int] = np.argmax(logits, axis=1).tolist()
    return best


def sample_row(logits: Float32, row: Row, best: int) -> Drawn:
    """Draw the token of one row [V], whose entry of `best_tokens` is ``best``."""
    values, top = logits, best
    if row.params.adjusts_logits or row.mask is not None:
        values = _adjusted(logits, row)
        top = int(np.argmax(values))
    if math.isnan(logits[best]) or math.isnan(values[top]):
        return NoToken.NAN
    if values[top] == -np.inf:
        return NoToken.NOTHING_ALLOWED
    token = top if row.params.greedy else _draw(values, row, top)
    return Sampled(token, _logprobs(logits, token, row.params))


def _adjusted(logits: Float32, row: Row) -> Float32:
    """A row [V] after mask, penalties and biases: minus infinity is what the mask forbids."""
    if row.mask is None:
        values = logits.copy()
    else:
        values = np.where(unpacked(row.mask, len(logits)), logits, np.float32(-np.inf))
    if row.params.adjusts_logits:
        _penalize(values, row)
    return values


def unpacked(mask: Mask, vocab_size: int) -> npt.NDArray[np.bool_]:
    """[V] which tokens a mask allows."""
    octets = mask.astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, count=vocab_size, bitorder="little").view(np.bool_)


def _penalize(values: Float32, row: Row) -> None:
    """Apply penalties and biases to a row [V] in place."""
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
        with np.errstate(invalid="ignore"):  # infinity and its opposite: a NaN, which is reported
            values[ids] += np.fromiter(params.logit_bias.values(), np.float32)


def _draw(logits: Float32, row: Row, best: int) -> int:
    drawn = words(row.seed, row.completion, row.position, len(logits))
    distance = distances(logits, row.params.temperature)
    ids = kept_tokens(distance, row.params)
    if ids is None:
        ids = _contenders(distance, drawn, best)
    return int(ids[np.argmax(gumbel(drawn[ids]) - distance[ids])])


def _contenders(distance: Float64, drawn: Words, best: int) -> Int64:
    """Every token that can win, so that the noise of most need not be computed.

    The winner must beat the likeliest token with its noise; a token farther than ``_REACH`` can do
    so only with noise that much larger.
    """
    lucky = drawn >= least_word(float(gumbel(drawn[best : best + 1])[0]) + _REACH)
    return np.flatnonzero((distance <= _REACH) | lucky)


def _logprobs(logits: Float32, token: int, params: SamplingParams) -> TokenLogprobs | None:
    """Log-probabilities of one row [V] under the model's own distribution."""
    if params.logprobs is None:
        return None
    distance = distances(logits, 1.0)
    whole = np.array([masses(distance).sum() / WHOLE_MASS])
    values = -(distance + log(whole))
    ids = nearest(distance, min(params.logprobs, len(logits)))
    top = tuple((int(i), float(values[i])) for i in ids)
    return TokenLogprobs(token, float(values[token]), top)
